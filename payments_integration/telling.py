"""Whether the code that runs now is a receiver being told of a change.

The inbox tells inside its own transaction; whatever a receiver sends must wait until that has ended.
``services.defer`` asks here and then only records what is to be sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_telling: ContextVar[bool] = ContextVar("payments_integration_telling", default=False)


def is_telling() -> bool:
    """Whether a receiver is being told, in this thread or task."""
    return _telling.get()


@contextmanager
def telling() -> Iterator[None]:
    """Mark the code within as a receiver being told. Nests."""
    token = _telling.set(True)
    try:
        yield
    finally:
        _telling.reset(token)
