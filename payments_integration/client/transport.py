"""One HTTP exchange: exact bytes out, a status with headers and bytes back, within the total deadline.

Loaded with a process's first request: requests and urllib3 take longer to import than the whole rest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy

import requests
import urllib3
from django.views.decorators.debug import sensitive_variables

from payments_integration import __version__, conf
from payments_integration.client.bounded import BoundedAdapter
from payments_integration.client.deadline import budget, within
from payments_integration.client.reply import Reply
from payments_integration.exceptions import NoAnswer

logger = logging.getLogger("payments_integration.client")

MAX_ANSWER_BYTES = 16 * 1024 * 1024
POOL_SIZE = 32
_CHUNK = 64 * 1024


class Transport:
    """A pooled session that sends one account's requests. Threads may share it; processes may not."""

    def __init__(self, account: conf.Account) -> None:
        self._url = f"{account.base_url}/v1"
        self._session = _session(account.api_key)

    @sensitive_variables("body", "params", "headers", "response")
    def exchange(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Reply:
        """Send once; ``path`` is already quoted. Raises NoAnswer when not even status and headers came."""
        headers: dict[str, str] = {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        limits = conf.current()
        deadline = budget(limits.REQUEST_DEADLINE)
        started = time.monotonic()
        response: requests.Response | None = None
        content, problem = b"", ""
        # The errors of requests carry the request with its headers and body: they end here, and what is
        # raised below is raised outside the except block so that they are not even its context.
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
            problem = _name(error)
        finally:
            if response is not None:
                response.close()
        duration = time.monotonic() - started
        if response is None:
            logger.debug("%s %s: %s after %.3f s", method, path, problem, duration)
            raise NoAnswer(f"{method} {path}: {problem}")
        reply = Reply(
            method,
            path,
            response.status_code,
            response.headers,
            b"" if problem else content,
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
        )
        return reply


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        # Even when told not to follow, requests prepares the next request, and reads the whole body for it.
        return None


def _session(api_key: str) -> requests.Session:
    session = _Session()
    # With trust_env, requests prefers a .netrc entry for the host over our Authorization header, and whoever
    # sets the environment could put a proxy or a CA of theirs between us and the provider.
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # shared by threads: no state
    session.headers.clear()
    session.headers.update(
        {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Authorization": f"Bearer {api_key}",
            "User-Agent": f"payments_integration/{__version__}",
        }
    )
    # No retries of the library's own: only the owner of an idempotency key may send twice.
    adapter = BoundedAdapter(pool_connections=1, pool_maxsize=POOL_SIZE, max_retries=0)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _read(response: requests.Response) -> tuple[bytes, str]:
    """The whole body, or what is wrong with it."""
    chunks: list[bytes] = []
    size = 0
    try:
        for chunk in response.iter_content(_CHUNK):
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                return b"", "the answer is too large"
            chunks.append(chunk)
    except (OSError, urllib3.exceptions.HTTPError, HTTPException) as error:
        return b"", _name(error)
    return b"".join(chunks), ""


def _name(error: Exception) -> str:
    """A few words for an error whose own text may hold the URL with its query."""
    if isinstance(error, requests.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, requests.Timeout | TimeoutError) or "timed out" in str(error):
        return "no whole answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "the TLS connection failed"
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return "the answer is truncated"
    return "the connection failed"
