"""The base of all commands. It needs no models, as ``payments_sandbox`` runs without a database."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management import BaseCommand
from django.core.management.base import CommandParser


class PaymentsCommand(BaseCommand):
    """A command that prints on every terminal: ``\\u2013`` for a dash that its encoding, such as ASCII, lacks.

    The environment variable NO_COLOR (https://no-color.org) counts as ``--no-color``; ``--force-color`` overrides it.
    """

    def __init__(self, stdout: Any = None, stderr: Any = None, no_color: bool = False, force_color: bool = False):
        super().__init__(
            stdout, stderr, no_color or (bool(os.environ.get("NO_COLOR")) and not force_color), force_color
        )

    def create_parser(self, *args: Any, **kwargs: Any) -> CommandParser:
        # Comes before everything that is printed, also before --help.
        stream: Any = sys.stdout
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        return super().create_parser(*args, **kwargs)
