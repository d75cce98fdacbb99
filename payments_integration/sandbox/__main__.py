"""Run the sandbox without a Django project: ``python -m payments_integration.sandbox``, or ``payments-sandbox``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from django.conf import settings
from django.core.management.color import color_style, no_style

from payments_integration import __version__

from .command import CommandFailedError, add_options, serve
from .triggering import add_sandbox_arguments, add_trigger_arguments, trigger


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM, or trigger an event of a running sandbox. Returns the exit code."""
    # A log line may have a character that the terminal's encoding lacks.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _trigger(given[1:]) if given[:1] == ["trigger"] else _serve(given)
    except CommandFailedError as error:
        sys.stderr.write(f"payments-sandbox: {error}\n")
        return error.code


def _serve(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="payments-sandbox",
        description="Serves a complete fake of the payment provider until Ctrl-C or SIGTERM. Needs no Django project. "
        '"payments-sandbox trigger EVENT" has a sandbox that runs send an event.',
    )
    add_options(parser)
    parser.add_argument("--version", action="version", version=f"payments-sandbox {__version__}")
    colours = parser.add_mutually_exclusive_group()
    colours.add_argument(
        "--no-color", action="store_true", default=bool(os.environ.get("NO_COLOR")), help="print without colours"
    )
    colours.add_argument("--force-color", action="store_true", help="print colours where there is no terminal")
    options = parser.parse_args(arguments)
    if not settings.configured:
        # Otherwise Django would import the module in DJANGO_SETTINGS_MODULE, or fail.
        settings.configure(USE_I18N=False)
    is_plain = options.no_color and not options.force_color
    serve(options, sys.stdout, no_style() if is_plain else color_style(options.force_color))
    return 0


def _trigger(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="payments-sandbox trigger",
        description="Has a sandbox that runs make an object and lead it to an event, through the states on the way.",
    )
    add_trigger_arguments(parser)
    add_sandbox_arguments(parser)
    if not trigger(parser.parse_args(arguments), sys.stdout):
        sys.stderr.write("No webhook endpoint of the sandbox takes this event.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
