"""Hold an account's connections: everything before the first byte of a request leaves, and reading the answer.

A request was not executed if no byte of it has left. So every failure before that byte is a :class:`NotConnected`:
looking up the host, connecting, a proxy, the TLS handshake. Its text tells people what to do.

A timeout of a socket limits only the silence between two bytes: it never ends an answer that sends one byte per
second. So the timeout is set before each read and each write, to the time that is left.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HeaderParsingError, HTTPError
from urllib3.util.response import assert_header_parsing
from urllib3.util.ssl_match_hostname import CertificateError

from payments_integration import conf
from payments_integration.client.resolver import Address, Resolver, is_loopback

#: Called with the seconds within which the exchange ends.
Check = Callable[[float], None]

_WAY_OUT = "Check BASE_URL. If a proxy is the only way out, set PROXY."
_PROXY = "Check PROXY."
_IN_TESTS = "ProviderSandbox (payments_integration.testing) or the pytest fixture payments_sandbox"
#: X509_V_ERR_… of OpenSSL.
_CERTIFICATE_DATES = {9: "is not valid yet. Is the clock of this machine right?", 10: "has expired."}
_OTHER_HOST = (62, 63, 64)
#: Gateways forget idle connections and reset them. Connections that were idle for longer are not used again.
MAX_IDLE = 30.0
#: Probe a silent connection, so that a gateway does not forget it while an answer is awaited.
_PROBE_AFTER = 15
_CHUNK = 16 * 1024
#: How a connection ends if its other side has forgotten or closed it.
_ENDED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), _PROBE_AFTER)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL")
        if hasattr(socket, name)  # not on every system
    ),
]


class NotConnected(Exception):
    """No byte of the request has left. The text tells people why, and what to do."""


class EndedEarly(Exception):
    """A connection of the pool was reset, or ended, before the first byte of the answer."""


@dataclass(slots=True)
class Attempt:
    """One request: its limits, and how far it has come."""

    base_url: str
    #: Without user and password; "" without a proxy.
    proxy: str
    resolver: Resolver
    #: When it must be over, on the monotonic clock.
    ends_at: float
    #: Seconds without a byte that are allowed until then.
    silence: float
    #: Seconds to connect to one address, and for the TLS handshake.
    connect_timeout: float
    #: Called right before the first byte leaves.
    check: Check | None = None
    #: The first request was lost with its connection. This one uses a new connection.
    is_repetition: bool = False
    is_on_reused_connection: bool = False
    #: The error of ``check``.
    refusal: Exception | None = None
    #: A byte of the answer has arrived.
    has_answer: bool = False

    def left(self) -> float:
        """Return the seconds until the deadline. Raises TimeoutError after it."""
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def timeout(self) -> float:
        """Return the seconds that the next read or write may take. Raises TimeoutError after the deadline."""
        return min(self.left(), self.silence)

    def connect_seconds(self) -> float:
        """Return the seconds that the next step of connecting may take. Raises TimeoutError after the deadline."""
        return min(self.left(), self.connect_timeout)

    def leave(self, *, is_reused: bool) -> None:
        """Let the first byte leave now, unless there is no time for the whole exchange."""
        try:
            left = self.left()
        except TimeoutError:
            raise NotConnected(f"no connection to {self.base_url} in time.") from None
        if self.check is not None:
            try:
                self.check(left)
            except Exception as error:
                # The frames between here and the caller hold the request.
                self.refusal = error.with_traceback(None)
        if self.refusal is not None:
            raise NotConnected("there is no time left.")
        self.is_on_reused_connection = is_reused

    def unresolved(self, error: Exception) -> NotConnected:
        what = "was not resolved in time" if isinstance(error, TimeoutError) else "cannot be resolved"
        if self.proxy:
            return NotConnected(f"on the way to {self.base_url}, the host of the proxy {self.proxy} {what}. {_PROXY}")
        return NotConnected(f"the host of {self.base_url} {what}. {_WAY_OUT}")

    def unreachable(self, error: OSError, address: Address | None) -> NotConnected:
        if isinstance(error, TimeoutError):
            what = "did not accept a connection in time"
        elif isinstance(error, ConnectionRefusedError):
            what = "refused the connection"
        else:
            what = f"cannot be reached ({os.strerror(error.errno) if error.errno else 'no address'})"
        if self.proxy:
            return NotConnected(f"on the way to {self.base_url}, the proxy {self.proxy} {what}. {_PROXY}")
        is_here = address is not None and is_loopback(address)
        advice = "Is the sandbox running?" if is_here else _WAY_OUT
        if is_here and conf.stays_on_this_machine():
            advice = f"In a test, use {_IN_TESTS}."
        return NotConnected(f"{self.base_url} {what}. {advice}")

    def refused_by_proxy(self, error: Exception) -> NotConnected:
        answered = re.search(r"Tunnel connection failed: ([0-9]{3})", str(error))
        if answered is None:
            is_late = isinstance(error, TimeoutError)
            what = "did not answer in time" if is_late else "ended the connection without a usable answer"
        elif answered[1] == "407":
            what = "wants a user and a password (HTTP 407)"
        else:
            what = f"did not connect to it (HTTP {answered[1]})"
        return NotConnected(f"on the way to {self.base_url}, the proxy {self.proxy} {what}. {_PROXY}")

    def insecure(self, error: Exception) -> NotConnected:
        """Explain that the TLS handshake failed."""
        if isinstance(error, TimeoutError):
            return NotConnected(f"the TLS handshake with {self.base_url} did not end in time.")
        code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
        if code in _CERTIFICATE_DATES:
            what = _CERTIFICATE_DATES[code]
        elif isinstance(error, CertificateError) or code in _OTHER_HOST:
            what = "is for another host. Check BASE_URL."
        elif isinstance(error, ssl.SSLCertVerificationError):
            what = "is not signed by a trusted authority. If your network or its proxy signs it, set CA_BUNDLE."
        else:
            return NotConnected(f"the TLS handshake with {self.base_url} failed.")
        return NotConnected(f"the certificate of {self.base_url} {what}")

    def outside(self) -> NotConnected:
        """Explain that a test would leave this machine."""
        where = f"{self.base_url}, by the proxy {self.proxy}," if self.proxy else self.base_url
        return NotConnected(
            f"{where} is not on this machine, and tests stay on it. Use {_IN_TESTS}, or set ALLOW_NETWORK_IN_TESTS."
        )


attempts: ContextVar[Attempt] = ContextVar("payments_integration_attempt")
#: The request that this thread sends.
current_attempt = attempts.get


def open_socket(host: str, port: int) -> socket.socket:
    """Open a connection to the first address of the host that accepts one."""
    attempt = current_attempt()
    if attempt.proxy and conf.stays_on_this_machine():
        raise attempt.outside()
    try:
        addresses = attempt.resolver.addresses(host.strip("[]"), port, attempt.left)
    except (OSError, UnicodeError) as error:
        raise (attempt.outside() if conf.stays_on_this_machine() else attempt.unresolved(error)) from None
    if conf.stays_on_this_machine() and not all(map(is_loopback, addresses)):
        raise attempt.outside()
    failure = attempt.unreachable(OSError(), None)
    for address in addresses:
        try:
            return _connected(address, attempt)
        except OSError as error:
            failure = attempt.unreachable(error, address)
    raise failure


def _connected(address: Address, attempt: Attempt) -> socket.socket:
    family, kind, protocol, _name, target = address
    opened = socket.socket(family, kind, protocol)
    try:
        for option in _OPTIONS:
            opened.setsockopt(*option)
        opened.settimeout(attempt.connect_seconds())
        opened.connect(target)
        opened.settimeout(attempt.connect_seconds())  # for the TLS handshake
    except BaseException:
        opened.close()
        raise
    return opened


@contextlib.contextmanager
def _may_end_early(attempt: Attempt) -> Iterator[None]:
    try:
        yield
    except _ENDED:
        if attempt.is_on_reused_connection and not attempt.has_answer:
            raise EndedEarly from None
        raise


class _Reader(io.RawIOBase):
    """Reads from a socket until the deadline, then raises TimeoutError."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, attempt: Attempt) -> None:
        self._raw = raw
        self._sock = sock
        self._attempt = attempt

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._attempt.timeout())
        count = self._raw.readinto(buffer)
        if count:
            self._attempt.has_answer = True
        return count

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._raw.close()


class _Response(http.client.HTTPResponse):
    """Reads the status line, the headers and the body within the deadline."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock, current_attempt()))

    def begin(self) -> None:
        super().begin()
        try:
            assert_header_parsing(self.msg)
        except HeaderParsingError:
            # urllib3 would accept this answer, and log its headers and its URL with the query.
            raise http.client.HTTPException("malformed headers") from None


class _Connection(HTTPConnection):
    response_class = _Response
    #: A project that debugs its requests sets this in http.client, for the whole process. Then Python would print each
    #: request, with the API key and the payer.
    debuglevel = 0
    #: On the monotonic clock.
    idle_since = 0.0
    _is_used = False

    def _new_conn(self) -> socket.socket:
        opened = open_socket(self._dns_host, self.port)
        sys.audit("http.client.connect", self, self.host, self.port)
        return opened

    def _tunnel(self) -> None:
        attempt = current_attempt()
        try:
            super()._tunnel()
            self.sock.settimeout(attempt.connect_seconds())  # for the TLS handshake
        except (OSError, http.client.HTTPException) as error:
            raise attempt.refused_by_proxy(error) from None

    def connect(self) -> None:
        self._is_used = False
        try:
            super().connect()
        except (OSError, CertificateError, HTTPError) as error:
            # The steps before the TLS handshake raise NotConnected.
            raise current_attempt().insecure(error) from None

    def request(self, *args: Any, **kwargs: Any) -> None:
        attempt = current_attempt()
        if self.sock is None:
            self.connect()
        elif self._is_used and conf.stays_on_this_machine() and not self._is_to_this_machine():
            raise attempt.outside()  # opened while ALLOW_NETWORK_IN_TESTS was set
        attempt.leave(is_reused=self._is_used)
        self._is_used = True
        # After a reset, the server may have answered without reading everything. If not, reading fails as well.
        with _may_end_early(attempt), contextlib.suppress(ConnectionError):
            super().request(*args, **kwargs)

    def send(self, data: Any) -> None:
        attempt = current_attempt()
        for begin in range(0, len(data), _CHUNK):
            self.sock.settimeout(attempt.timeout())
            super().send(data[begin : begin + _CHUNK])

    def getresponse(self) -> Any:
        with _may_end_early(current_attempt()):
            return super().getresponse()

    def _is_to_this_machine(self) -> bool:
        return self.proxy is None and is_loopback((0, 0, 0, "", self.sock.getpeername()))


class _TLSConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection

    def _get_conn(self, timeout: float | None = None) -> Any:
        connection: Any = super()._get_conn(timeout)
        if current_attempt().is_repetition or time.monotonic() - connection.idle_since > MAX_IDLE:
            connection.close()  # it connects again
        return connection

    def _put_conn(self, conn: Any) -> None:
        if conn is not None:
            conn.idle_since = time.monotonic()
        super()._put_conn(conn)


class _TLSPool(_Pool, HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


POOLS: dict[str, type[HTTPConnectionPool]] = {"http": _Pool, "https": _TLSPool}
