"""Follow one request on its connection, and explain to people why there is no connection."""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from urllib3.util.ssl_match_hostname import CertificateError

from payments_integration.client.resolver import Address, Resolver, is_loopback

#: Called with the seconds within which the exchange ends.
Check = Callable[[float], None]


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

    # Why there is no connection, for people.

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
        return NotConnected(f"{self.base_url} {what}. {_SANDBOX if is_here else _WAY_OUT}")

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

    def without_authorities(self) -> NotConnected:
        return NotConnected(f"the certificate of {self.base_url} cannot be checked. The file of CA_BUNDLE is gone.")

    def outside(self) -> NotConnected:
        """Explain that a test would leave this machine."""
        where = f"{self.base_url}, by the proxy {self.proxy}," if self.proxy else self.base_url
        return NotConnected(
            f"{where} is not on this machine, and tests stay on it. Use ProviderSandbox "
            "(payments_integration.testing) or the pytest fixture payments_sandbox, or set ALLOW_NETWORK_IN_TESTS."
        )


_WAY_OUT = "Check BASE_URL. If a proxy is the only way out, set PROXY."
_PROXY = "Check PROXY."
_SANDBOX = "Is the sandbox running?"
#: X509_V_ERR_… of OpenSSL.
_CERTIFICATE_DATES = {9: "is not valid yet. Is the clock of this machine right?", 10: "has expired."}
_OTHER_HOST = (62, 63, 64)

attempts: ContextVar[Attempt] = ContextVar("payments_integration_attempt")
#: The request that this thread sends.
current_attempt = attempts.get
