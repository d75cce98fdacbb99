"""A time limit: the worker's signal handler raises at any line of the app's code."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import payments_integration

_PACKAGE = Path(payments_integration.__file__).parent
#: Where lines count: in the whole app, or in one part of it, which the worker otherwise spends few lines in. The
#: sandbox's lines are the provider's.
PARTS = ("", "inbox/", "inbox/dispatching.py", "inbox/calling.py", "outbox/", "db/", "projection/", "reconciliation/")


class SoftTimeLimit(Exception):
    """Stands for Celery's ``SoftTimeLimitExceeded``."""


class HardTimeLimit(BaseException):
    """Stands for the time-outs of gevent."""


LIMITS: tuple[type[BaseException], ...] = (SoftTimeLimit, HardTimeLimit, KeyboardInterrupt)


@contextmanager
def raising(error: type[BaseException], at_line: int, part: str, fired: Callable[[str], None]) -> Iterator[None]:
    """Raise the error in this thread, at the so manieth line that is run of this part. ``fired`` is told where."""
    prefix, sandbox = f"{_PACKAGE}/{part}", f"{_PACKAGE}/sandbox/"
    left = at_line

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event != "line":
            return line
        left -= 1
        code = frame.f_code
        # The line of a ``with`` also comes before its exit, which Python would then skip.
        if left <= 0 and not linecache.getline(code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            sys.settrace(None)
            fired(f"{Path(code.co_filename).relative_to(_PACKAGE)}:{frame.f_lineno}")
            raise error
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        return line if name.startswith(prefix) and not name.startswith(sandbox) else None

    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(None)
