"""Connections whose answers keep to a deadline.

A read timeout bounds only the silence between two bytes: an answer that drips one byte per second never ends
it. Here every read from the socket, for the status line, the headers and the body, first shortens the
socket's timeout to what is left of the deadline.
"""

from __future__ import annotations

import http.client
import io
import socket
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HeaderParsingError
from urllib3.util.response import assert_header_parsing

from payments_integration.client.deadline import Deadline, deadline


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
        bound = deadline()
        if bound is not None:
            raw = self.fp.detach()
            self.fp = io.BufferedReader(_BoundedReader(raw, sock, bound))

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
    """Pooled connections whose answers keep to the deadline of ``deadline.within``."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _BoundedHTTPPool, "https": _BoundedHTTPSPool}
