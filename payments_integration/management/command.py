"""Give all commands a base class. It needs no models, because ``payments_sandbox`` runs without a database."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management import BaseCommand
from django.core.management.base import CommandParser


class Output:
    """A stream that loses what is written after its reader, such as ``head``, has gone."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.reader_has_gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        with self._lost():
            self._stream.write(text)

    def flush(self) -> None:
        with self._lost():
            if hasattr(self._stream, "flush"):
                self._stream.flush()

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self.reader_has_gone = True
            # What Python still buffers would raise again when the process ends, and change its exit code.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


class PaymentsCommand(BaseCommand):
    """A command that can print on every terminal. It prints ``\\u2013`` if the encoding, such as ASCII, lacks a dash.

    A reader that closes the pipe does not end it: it does its work, and its exit code is the same.

    The environment variable NO_COLOR (https://no-color.org) counts as ``--no-color``. ``--force-color`` overrides it.
    """

    def __init__(self, stdout: Any = None, stderr: Any = None, no_color: bool = False, force_color: bool = False):
        no_color = no_color or (bool(os.environ.get("NO_COLOR")) and not force_color)
        out: Any = Output(stdout or sys.stdout)
        err: Any = Output(stderr or sys.stderr)
        super().__init__(out, err, no_color, force_color)

    @property
    def reader_has_gone(self) -> bool:
        return bool(getattr(self.stdout, "reader_has_gone", False))

    def execute(self, *args: Any, **options: Any) -> Any:
        for name in ("stdout", "stderr"):
            if options.get(name):
                options[name] = Output(options[name])
        try:
            return super().execute(*args, **options)
        finally:
            self.stdout.flush()

    def create_parser(self, *args: Any, **kwargs: Any) -> CommandParser:
        # Django calls this before anything is printed, even before --help.
        stream: Any = sys.stdout
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        return super().create_parser(*args, **kwargs)
