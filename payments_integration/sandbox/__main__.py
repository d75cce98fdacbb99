"""``python -m payments_integration.sandbox``, and ``payments-sandbox``: the sandbox without a Django project."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from django.conf import settings

from .command import CommandFailedError, add_options, serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM. Returns the exit code: 1 if it cannot start."""
    parser = argparse.ArgumentParser(
        prog="payments-sandbox",
        description="Serves a complete fake of the payment provider until Ctrl-C or SIGTERM. Needs no Django project.",
    )
    add_options(parser)
    options = parser.parse_args(arguments)
    if not settings.configured:
        # Without this, Django would import what DJANGO_SETTINGS_MODULE names, or fail.
        settings.configure(USE_I18N=False)
    try:
        serve(options, sys.stdout)
    except CommandFailedError as error:
        sys.stderr.write(f"payments-sandbox: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
