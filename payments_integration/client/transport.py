"""One HTTP exchange: exact bytes out, a status with headers and bytes back, within the total deadline.

Imported with a process's first request, because importing requests and urllib3 takes long.
"""

from __future__ import annotations

import http.client
import io
import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
import urllib3
from django.views.decorators.debug import sensitive_variables
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HeaderParsingError
from urllib3.util.response import assert_header_parsing

from payments_integration import __version__, conf
from payments_integration.client.deadlines import DeadlineReader, budget, current_deadline, within
from payments_integration.exceptions import NoAnswer

logger = logging.getLogger("payments_integration.client")

MAX_ANSWER_BYTES = 16 * 1024 * 1024
POOL_SIZE = 32
_CHUNK = 64 * 1024
_REQUEST_ID_HEADERS = ("X-Request-Id", "Request-Id")
_MAX_REQUEST_ID = 255
_TOO_LARGE = "the answer is too large"


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of any status, not yet judged.

    ``problem`` is empty if the body arrived whole; otherwise it says what cut it short, and ``body`` is empty. Only of
    an answer that is too large it is the beginning.
    """

    method: str
    path: str
    status_code: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    problem: str
    #: Seconds from before sending until the last byte.
    duration: float

    @property
    def request_id(self) -> str:
        """The provider's id of this request; empty if the headers name none."""
        for name in _REQUEST_ID_HEADERS:
            value = self.headers.get(name, "")
            if value and value.isascii() and value.isprintable():
                return value[:_MAX_REQUEST_ID]
        return ""

    @property
    def is_too_large(self) -> bool:
        return self.problem == _TOO_LARGE

    def no_answer(self, why: str) -> NoAnswer:
        """The error for a reply that cannot be used. ``why`` names a place, never a value."""
        message = f"{self.method} {self.path}: {why} (HTTP {self.status_code})"
        return NoAnswer(message, status_code=self.status_code, request_id=self.request_id)


class Transport:
    """A pooled session that sends one account's requests. Threads may share it; processes may not."""

    def __init__(self, account: conf.Account) -> None:
        self._account = account.alias
        self._url = f"{account.base_url}/v1"
        self._session = _session(account.api_key)

    @sensitive_variables()  # also below: requests and urllib3 have the body and the key under names of their own
    def exchange(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Reply:
        """Send once; ``path`` is already quoted. Raises NoAnswer if no status and headers arrive."""
        headers: dict[str, str] = {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        limits = conf.current()
        deadline = budget(limits.REQUEST_DEADLINE)
        started = time.monotonic()
        response: requests.Response | None = None
        content, problem, was_connected = b"", "", True
        # An error of requests holds the request with its headers and body. NoAnswer is raised outside the except
        # block, so that this error is not even its context.
        try:
            with within(deadline, limits.READ_TIMEOUT):
                response = self._session.request(
                    method,
                    self._url + path,
                    params=params,
                    data=body,
                    headers=headers,
                    timeout=(
                        min(limits.CONNECT_TIMEOUT, deadline),
                        min(limits.READ_TIMEOUT, deadline),
                    ),
                    allow_redirects=False,
                    stream=True,
                )
                content, problem = _read(response)
        except (OSError, urllib3.exceptions.HTTPError, HTTPException) as error:
            problem, was_connected = _name(error), not _is_unconnected(error)
        finally:
            if response is not None:
                response.close()
        duration = time.monotonic() - started
        if response is None:
            extra = {"account": self._account}
            logger.debug("%s %s: %s after %.3f s", method, path, problem, duration, extra=extra)
            raise NoAnswer(f"{method} {path}: {problem}", was_connected=was_connected)
        reply = Reply(
            method,
            path,
            response.status_code,
            response.headers,
            content,
            problem,
            duration,
        )
        logger.debug(
            "%s %s: HTTP %d in %.3f s, request %s%s",
            method,
            path,
            reply.status_code,
            duration,
            reply.request_id or "-",
            f", {problem}" if problem else "",
            extra={"account": self._account, "request_id": reply.request_id},
        )
        return reply


class _DeadlineResponse(http.client.HTTPResponse):
    """The status line, the headers and the body are read within the deadline."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        deadline = current_deadline()
        if deadline is not None:
            self.fp = io.BufferedReader(DeadlineReader(self.fp.detach(), sock, deadline))

    def begin(self) -> None:
        super().begin()
        try:
            assert_header_parsing(self.msg)
        except HeaderParsingError:
            # urllib3 would accept such an answer and log its URL, with the query, and its headers.
            raise http.client.HTTPException("malformed headers") from None


class _DeadlineHTTPConnection(HTTPConnection):
    response_class = _DeadlineResponse


class _DeadlineHTTPSConnection(HTTPSConnection):
    response_class = _DeadlineResponse


class _DeadlineHTTPPool(HTTPConnectionPool):
    ConnectionCls = _DeadlineHTTPConnection


class _DeadlineHTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _DeadlineHTTPSConnection


class DeadlineAdapter(HTTPAdapter):
    """Pooled connections whose answers end within the deadline of ``deadlines.within``."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _DeadlineHTTPPool, "https": _DeadlineHTTPSPool}


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        # Even with allow_redirects=False, requests prepares the next request and reads the whole body for it.
        return None


def _session(api_key: str) -> requests.Session:
    session = _Session()
    # With trust_env, a .netrc entry for the host would replace our Authorization header, and environment variables
    # could put another proxy or CA between us and the provider.
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # threads share it: no state
    session.headers.clear()
    session.headers.update(
        {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Authorization": f"Bearer {api_key}",
            "User-Agent": f"payments_integration/{__version__}",
        }
    )
    # No retries by the library: only the owner of an idempotency key may send twice.
    adapter = DeadlineAdapter(pool_connections=1, pool_maxsize=POOL_SIZE, max_retries=0)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _read(response: requests.Response) -> tuple[bytes, str]:
    """The whole body and ""; or the problem that cut it short, with the beginning of a body that is too large."""
    chunks: list[bytes] = []
    size = 0
    try:
        for chunk in response.iter_content(_CHUNK):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                return b"".join(chunks), _TOO_LARGE
            chunks.append(chunk)
    except (OSError, urllib3.exceptions.HTTPError, HTTPException) as error:
        return b"", _name(error)
    return b"".join(chunks), ""


def _is_unconnected(error: Exception) -> bool:
    """Whether no connection was made: refused, no such name, or no handshake in time."""
    cause = error.args[0] if isinstance(error, requests.ConnectionError) and error.args else None
    reason = getattr(cause, "reason", None)
    return isinstance(reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)


def _name(error: Exception) -> str:
    """A few words for an error, because its own text may hold the URL with its query."""
    if isinstance(error, requests.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, requests.Timeout | TimeoutError) or "timed out" in str(error):
        return "no whole answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "the TLS connection failed"
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return "the answer is truncated"
    return "the connection failed"
