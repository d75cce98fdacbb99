"""A deadline for a whole HTTP exchange.

A read timeout bounds only the silence between two bytes: an answer that drips one byte per second never ends
it. Here every read from the socket, for the status line, the headers and the body, first shortens the
socket's timeout to what is left of the deadline.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HeaderParsingError
from urllib3.util.response import assert_header_parsing


@dataclass(frozen=True, slots=True)
class Deadline:
    """``at`` on the monotonic clock; ``silence``: seconds without a byte that are allowed until then."""

    at: float
    silence: float

    def timeout(self) -> float:
        """Seconds that the next read may take; TimeoutError once the deadline has passed."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return min(left, self.silence)


_deadline: ContextVar[Deadline | None] = ContextVar("payments_integration_deadline", default=None)


@contextmanager
def within(seconds: float, silence: float) -> Iterator[None]:
    """Every answer that begins in this block, in this thread, ends within ``seconds`` from now."""
    token = _deadline.set(Deadline(time.monotonic() + seconds, silence))
    try:
        yield
    finally:
        _deadline.reset(token)


_budget: ContextVar[float | None] = ContextVar("payments_integration_budget", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Requests begun in this block, in this thread, get no more than this, whatever the settings allow.

    For a caller whom somebody else waits for.
    """
    token = _budget.set(seconds)
    try:
        yield
    finally:
        _budget.reset(token)


def budget(allowed: float) -> float:
    """``allowed`` seconds for a request, or less inside :func:`at_most`."""
    seconds = _budget.get()
    return allowed if seconds is None else max(0.01, min(allowed, seconds))


class _BoundedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.timeout())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._raw.close()


class _BoundedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        deadline = _deadline.get()
        if deadline is not None:
            raw = self.fp.detach()
            self.fp = io.BufferedReader(_BoundedReader(raw, sock, deadline))

    def begin(self) -> None:
        super().begin()
        try:
            assert_header_parsing(self.msg)
        except HeaderParsingError:
            # urllib3 would go on with such an answer, and log the URL with its query and what it read.
            raise http.client.HTTPException("malformed headers") from None


class _BoundedHTTPConnection(HTTPConnection):
    response_class = _BoundedResponse


class _BoundedHTTPSConnection(HTTPSConnection):
    response_class = _BoundedResponse


class _BoundedHTTPPool(HTTPConnectionPool):
    ConnectionCls = _BoundedHTTPConnection


class _BoundedHTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _BoundedHTTPSConnection


class BoundedAdapter(HTTPAdapter):
    """Pooled connections whose answers keep to the deadline of :func:`within`."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _BoundedHTTPPool, "https": _BoundedHTTPSPool}
