"""Log so that the project's logging cannot change what the app does.

Python contains only the errors of its own handlers. A filter, a record factory or a handler of the project may raise
at the line that logs. The next line, which counts a failure or writes an outcome, would then not run.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from typing import Any


class _Contained(logging.LoggerAdapter[logging.Logger]):
    """A logger that prints an error of the project's logging to stderr, as Python does for its own handlers."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        if not self.isEnabledFor(level):
            return
        try:
            if extra := kwargs.get("extra"):
                # A record factory of the project may set these names. Python refuses a record that has one twice.
                taken = vars(logging.makeLogRecord({}))
                kwargs["extra"] = {name: value for name, value in extra.items() if name not in taken}
            # The caller is one frame up.
            self.logger.log(level, msg, *args, stacklevel=2, **kwargs)
        except Exception:
            # A daemon may have closed stderr. Then even Python's own handlers raise.
            with suppress(Exception):
                if logging.raiseExceptions and sys.stderr is not None:
                    traceback.print_exc()


def get_logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """Return the logger of that name. Its methods raise no error of the project's filters, handlers or factories."""
    return _Contained(logging.getLogger(name))
