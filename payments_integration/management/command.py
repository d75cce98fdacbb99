"""Give all commands a base class. It needs no models, because ``payments_sandbox`` runs without a database."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management import BaseCommand
from django.core.management.base import CommandParser


class PaymentsCommand(BaseCommand):
    """A command that can print on every terminal. It prints ``\\u2013`` if the encoding, such as ASCII, lacks a dash.

    The environment variable NO_COLOR (https://no-color.org) counts as ``--no-color``. ``--force-color`` overrides it.
    """

    def __init__(self, stdout: Any = None, stderr: Any = None, no_color: bool = False, force_color: bool = False):
        super().__init__(
            stdout, stderr, no_color or (bool(os.environ.get("NO_COLOR")) and not force_color), force_color
        )

    def create_parser(self, *args: Any, **kwargs: Any) -> CommandParser:
        # Django calls this before anything is printed, even before --help.
        stream: Any = sys.stdout
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        return super().create_parser(*args, **kwargs)
