"""Do one HTTP exchange: exact bytes out, a status with headers and bytes back, within the total deadline.

Imported with a process's first request, because importing requests and urllib3 takes long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from django.views.decorators.debug import sensitive_variables
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from payments_integration import __version__, conf
from payments_integration.client.answers import TOO_LARGE, Reply
from payments_integration.client.connections import (
    POOLS,
    Attempt,
    Check,
    EndedEarly,
    NotConnected,
    attempts,
    current_attempt,
)
from payments_integration.client.resolver import Resolver
from payments_integration.exceptions import NoAnswer, nothing_sent
from payments_integration.runtime.logs import get_logger

logger = get_logger("payments_integration.client")

MAX_ANSWER_BYTES = 16 * 1024 * 1024
POOL_SIZE = 32
_CHUNK = 64 * 1024


class Transport:
    """A pooled session that sends one account's requests. Threads may share it; processes may not."""

    def __init__(self, account: conf.Account) -> None:
        self._account = account.alias
        self._base_url = account.base_url
        self._proxy = _without_user(account.proxy)
        self._resolver = Resolver()
        self._session = _session(account)

    @sensitive_variables()  # also below: requests and urllib3 have the body and the key under names of their own
    def exchange(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idempotency_key: str | None = None,
        limits: conf.Settings,
        seconds: float,
        check: Check | None,
    ) -> Reply:
        """Send once, and be over in ``seconds``, within the time-outs of ``limits``. ``path`` is already quoted.

        Raises NoAnswer if no status and headers arrive, and the error of ``check``, which is called right before the
        first byte leaves.

        A connection of the pool may be dead without a sign. If it ends before the first byte of the answer, the same
        request is sent once more, at once and on a new connection. Only an idempotency key makes that safe for a POST.
        """
        headers: dict[str, str] = {}
        if method == "GET":
            # A cache on the way would answer with an old state under its old Date.
            headers["Cache-Control"] = "no-cache"
        if body is not None:
            headers["Content-Type"] = "application/json"
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        ends_at = time.monotonic() + seconds
        url = f"{self._base_url}/v1{path}"
        was_repeated = False
        while True:
            attempt = Attempt(
                self._base_url,
                self._proxy,
                self._resolver,
                ends_at,
                limits.READ_TIMEOUT,
                limits.CONNECT_TIMEOUT,
                check,
                is_repetition=was_repeated,
            )
            started = time.monotonic()
            sent = self._send(attempt, method, url, params=params, data=body, headers=headers)
            if not sent.ended_early:
                break
            was_repeated = True
        duration = time.monotonic() - started
        response = sent.response
        if attempt.refusal is not None and not was_repeated:
            raise attempt.refusal
        if response is None:
            extra = {"account": self._account}
            logger.debug("%s %s: %s after %.3f s", method, path, sent.problem, duration, extra=extra)
            if not sent.is_unsent:
                message = f"{method} {url}: {sent.problem}"
            elif was_repeated:
                message = f"{method} {url}: the connection ended, and there is no other one: {sent.problem}"
            else:
                message = nothing_sent(sent.problem)
            error = NoAnswer(message, was_connected=was_repeated or not sent.is_unsent)
            error.was_repeated = was_repeated
            raise error
        reply = Reply(
            method, path, response.status_code, response.headers, sent.body, sent.problem, duration, was_repeated
        )
        logger.debug(
            "%s %s: HTTP %d in %.3f s, request %s%s",
            method,
            path,
            reply.status_code,
            duration,
            reply.request_id or "-",
            f", {sent.problem}" if sent.problem else "",
            extra={"account": self._account, "request_id": reply.request_id},
        )
        return reply

    @sensitive_variables()
    def _send(self, attempt: Attempt, method: str, url: str, **request: Any) -> _Sent:
        # An error of requests holds the request with its headers and body. NoAnswer is raised outside the except
        # block, so that this error is not even its context.
        response: requests.Response | None = None
        token = attempts.set(attempt)
        try:
            # The connection knows the deadline, and sets the timeouts.
            response = self._session.request(method, url, allow_redirects=False, stream=True, **request)
            return _Sent(response, *_read(response))
        except EndedEarly:
            return _Sent(ended_early=True)
        except NotConnected as error:
            return _Sent(problem=str(error), is_unsent=True)
        except (OSError, HTTPError, HTTPException) as error:
            return _Sent(problem=_name(error))
        finally:
            attempts.reset(token)
            if response is not None:
                response.close()


@dataclass(frozen=True, slots=True)
class _Sent:
    """How far one request came."""

    response: requests.Response | None = None
    body: bytes = field(default=b"", repr=False)
    problem: str = ""
    ended_early: bool = False
    #: No byte of it left. After any other error, even one that a mock raises, a byte may have left.
    is_unsent: bool = False


class _Adapter(HTTPAdapter):
    """Pooled connections of :mod:`connections`."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        try:
            super().cert_verify(conn, url, verify, cert)  # type: ignore[no-untyped-call]
        except OSError:
            what = f"the certificate of {current_attempt().base_url} cannot be checked"
            raise NotConnected(f"{what}. The file of CA_BUNDLE is gone.") from None

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = POOLS
        return manager


# Libraries such as requests-cache replace ``requests.Session`` for the whole process, with a subclass that caches. A
# cached answer would show an old state, or no object where there is one by now. So the original class is used.
_originals = (kind for kind in requests.Session.__mro__ if kind.__module__ == "requests.sessions")
if TYPE_CHECKING:
    _Original = requests.Session
else:
    _Original = next(_originals, requests.Session)


class _Session(_Original):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        # Even with allow_redirects=False, requests prepares the next request and reads the whole body for it.
        return None


def _session(account: conf.Account) -> requests.Session:
    session = _Session()
    # With trust_env, a .netrc entry for the host would replace our Authorization header, and environment variables
    # could put another proxy or CA between us and the provider. PROXY and CA_BUNDLE are for that.
    session.trust_env = False
    if account.proxy:
        session.proxies = {"https": account.proxy}  # http:// is this machine
    if account.ca_bundle:
        session.verify = account.ca_bundle
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # threads share it: no state
    session.headers.clear()
    session.headers.update(
        {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Authorization": f"Bearer {account.api_key}",
            "User-Agent": f"payments_integration/{__version__}",
        }
    )
    # No retries by the library: only the owner of an idempotency key may send twice.
    adapter = _Adapter(pool_connections=1, pool_maxsize=POOL_SIZE, max_retries=0)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _read(response: requests.Response) -> tuple[bytes, str]:
    """Read the body. Returns it and ""; or the problem that cut it short, with the beginning of a too large body."""
    chunks: list[bytes] = []
    size = 0
    try:
        for chunk in response.iter_content(_CHUNK):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                return b"".join(chunks), TOO_LARGE
            chunks.append(chunk)
    except (OSError, HTTPError, HTTPException) as error:
        return b"", _name(error)
    return b"".join(chunks), ""


def _name(error: Exception) -> str:
    """Name an error after a byte has left in a few words: its own text may hold the URL with its query."""
    if isinstance(error, requests.Timeout | TimeoutError) or "timed out" in str(error):
        return "no whole answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "the TLS connection failed"
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return "the answer is truncated"
    return "the connection failed"


def _without_user(proxy: str) -> str:
    """Return the address of a proxy for messages, without user and password, which are secret."""
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if proxy else ""
