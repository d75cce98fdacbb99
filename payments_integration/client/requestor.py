"""Make one account's requests: check before sending, keep the rate limit, retry 429, raise errors as exceptions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import quote

from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, telemetry
from payments_integration.client.answers import Reply, number_in
from payments_integration.client.errors import MAX_WAIT, TOO_MANY, error_of, personal_texts
from payments_integration.exceptions import NoAnswer, ProviderError, RateLimited, UnsendableRequest, is_refusal
from payments_integration.runtime import stopping
from payments_integration.validation.validator import IDEMPOTENCY_KEY, MAX_BODY_BYTES

if TYPE_CHECKING:
    from payments_integration.client.connections import Check
    from payments_integration.client.transport import Transport

#: An answer that came longer ago than this no longer says what time it is at the provider.
_LATEST_FOR = 3600.0

#: How many seconds one call may wait, for the rate limit and after 429s together, if its caller names no limit:
#: interactive calls, and background jobs.
INTERACTIVE_WAIT = 10.0
BACKGROUND_WAIT = 120.0

#: The share of the limit that background calls leave for interactive ones.
RESERVE = 0.3
_MAX_ID = 255

#: The provider counts reads (GET) and writes apart.
Bucket = Literal["read", "write"]

_budget: ContextVar[float | None] = ContextVar("payments_integration_budget", default=None)
_check: ContextVar[Check | None] = ContextVar("payments_integration_check", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Limit each request that this thread begins in this block to ``seconds``, even if REQUEST_DEADLINE allows more.

    For code that runs while a person waits for a page.
    """
    token = _budget.set(seconds)
    try:
        yield
    finally:
        _budget.reset(token)


def budget(allowed: float) -> float:
    """Return the seconds for a request: ``allowed``, or less inside :func:`at_most`."""
    seconds = _budget.get()
    return allowed if seconds is None else max(0.01, min(allowed, seconds))


@contextmanager
def before_sending(check: Check) -> Iterator[None]:
    """Call ``check`` right before the first byte of each request that this thread sends in this block.

    Looking up the host and connecting take time, in which a claim may end. ``check`` gets the seconds within which the
    exchange ends. If it raises an error, the request is not sent, and the call raises this error.
    """
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


@dataclass(slots=True)
class Window:
    """The requests that are left, as the provider last reported."""

    limit: int = 0
    remaining: int = 0
    #: The numbers are valid until then, on the monotonic clock.
    resets_at: float = 0.0


class RateLimiter:
    """Counts the requests that one API key has left, as an answer to this process last said (spec, "Limits").

    Interactive calls use the limit to the end; background calls leave a reserve for them. Thread-safe.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[Bucket, Window] = {"read": Window(), "write": Window()}

    def acquire(self, bucket: Bucket, *, leave_reserve: bool = False) -> float:
        """Count one request and return 0.0, or return the seconds to wait before asking again."""
        with self._lock:
            window = self._windows[bucket]
            wait = window.resets_at - self._monotonic()
            if wait <= 0:
                return 0.0
            floor = int(window.limit * RESERVE) if leave_reserve else 0
            if window.remaining <= floor:
                return wait
            # Counted before the request leaves, so that two threads do not both take the last one.
            window.remaining -= 1
            return 0.0

    def update(self, bucket: Bucket, headers: Mapping[str, str]) -> Window | None:
        """Store the RateLimit headers of an answer and return them. Malformed headers change nothing."""
        remaining = number_in(headers.get("RateLimit-Remaining"))
        reset = number_in(headers.get("RateLimit-Reset"))
        if remaining is None or reset is None:
            return None
        limit = number_in(headers.get("RateLimit-Limit")) or 0
        with self._lock:
            window = Window(limit, remaining, self._monotonic() + min(reset, MAX_WAIT))
            self._windows[bucket] = window
            return replace(window)  # a copy, because other requests count theirs in it


@dataclass(frozen=True, slots=True)
class LatestAnswer:
    """The latest answer of the account, even if it is an error."""

    #: Its ``Date`` in UTC; None if that is missing or malformed.
    date: datetime | None
    #: When it came, on the monotonic clock.
    at: float
    is_success: bool = True


@dataclass(frozen=True, slots=True)
class _ProcessState:
    """Sockets, locks and counters belong to one process: they do not survive a fork."""

    pid: int
    transport: Transport
    limiter: RateLimiter


class Requestor:
    """Sends one account's requests. Thread-safe, and safe to keep across a fork."""

    def __init__(
        self,
        account: conf.Account,
        *,
        sleep: Callable[[float], object] = stopping.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account = account
        self._sleep = sleep
        self._monotonic = monotonic
        self._state = self._new_state()
        self._latest: LatestAnswer | None = None

    def latest_answer(self) -> LatestAnswer | None:
        """Return the latest answer to this process; None if the last hour brought none."""
        latest = self._latest
        return latest if latest is not None and self._monotonic() - latest.at < _LATEST_FOR else None

    def ask(self) -> LatestAnswer:
        """Return the answer to a GET that is made now. Raises NoAnswer, or RateLimited if it must wait long."""
        before = self._latest
        try:
            self.get("/balances")
        except (ProviderError, NoAnswer):
            # Any answer has a Date, even an error.
            if self._latest is before:
                raise
        return cast("LatestAnswer", self._latest)

    def get(
        self,
        path: str,
        params: Mapping[str, object] | None = None,
        *,
        max_wait: float | None = None,
        background: bool = False,
    ) -> Reply:
        """Leave out ``params`` that are None, and send times in UTC."""
        if max_wait is None:
            max_wait = BACKGROUND_WAIT if background else INTERACTIVE_WAIT
        query = {name: _text(value) for name, value in (params or {}).items() if value is not None}
        return self._send("GET", path, params=query or None, max_wait=max_wait, background=background)

    @sensitive_variables()
    def post(self, path: str, body: bytes | None, *, idempotency_key: str, max_wait: float) -> Reply:
        if not IDEMPOTENCY_KEY.fullmatch(idempotency_key):
            raise UnsendableRequest("an Idempotency-Key is 1 to 255 visible ASCII characters")
        if body is not None and len(body) > MAX_BODY_BYTES:
            raise UnsendableRequest(f"a request body is at most {MAX_BODY_BYTES} bytes")
        return self._send("POST", path, body=body, idempotency_key=idempotency_key, max_wait=max_wait)

    def delete(self, path: str, *, max_wait: float) -> Reply:
        return self._send("DELETE", path, max_wait=max_wait)

    @sensitive_variables()
    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idempotency_key: str | None = None,
        max_wait: float,
        background: bool = False,
    ) -> Reply:
        """Return the 2xx reply, or raise ProviderError or NoAnswer.

        A request that was answered 429 was not executed. It is sent again, with the same key, until ``max_wait``
        seconds have passed.
        """
        state = self._own_state()
        bucket: Bucket = "read" if method == "GET" else "write"
        # Time spent on requests that were answered 429 counts as waiting. So a caller who has a claim on the
        # operation knows when the last request can begin. A test may stop the clock: what was slept counts too.
        began, slept = self._monotonic(), 0.0
        leave_reserve = background
        retries = 0
        while True:
            wait = state.limiter.acquire(bucket, leave_reserve=leave_reserve)
            if wait > 0:
                # A background call leaves the reserve for one window only. Otherwise it could wait for ever.
                leave_reserve = False
                error = RateLimited(
                    "waiting for the rate limit to reset would take too long; nothing was sent",
                    status_code=TOO_MANY,
                    code="rate_limited",
                    retry_after=wait,
                )
            else:
                limits = conf.current()
                exchange = telemetry.Exchange(self._account.alias, method, _route(path), retries)
                with telemetry.during(exchange):
                    reply = state.transport.exchange(
                        method,
                        path,
                        params=params,
                        body=body,
                        idempotency_key=idempotency_key,
                        limits=limits,
                        seconds=budget(limits.REQUEST_DEADLINE),
                        check=_check.get(),
                    )
                    refusal = None if 200 <= reply.status_code < 300 else self._refusal(reply, body)
                    exchange.status_code, exchange.request_id = reply.status_code, (refusal or reply).request_id
                    exchange.refusal = refusal
                window = state.limiter.update(bucket, reply.headers)
                if window is not None and window.limit:
                    telemetry.happened(
                        telemetry.RateLimit(self._account.alias, bucket, window.limit, window.remaining)
                    )
                self._latest = LatestAnswer(reply.answered_at, self._monotonic(), refusal is None)
                if refusal is None:
                    return reply
                if not isinstance(refusal, RateLimited) or reply.status_code != TOO_MANY:
                    raise refusal
                # If a POST was sent twice, or its 429 has the code of a failure, it may have been executed: its caller
                # decides.
                if method != "GET" and (reply.was_repeated or not is_refusal(refusal)):
                    raise refusal
                error, wait, retries = refusal, refusal.retry_after or 0.0, retries + 1
            if max(self._monotonic() - began, slept) + wait > max_wait or stopping.is_requested():
                raise error
            self._sleep(wait)
            slept += wait

    def _refusal(self, reply: Reply, body: bytes | None) -> ProviderError | NoAnswer:
        error = error_of(reply, mask=(self._account.api_key, *personal_texts(body)))
        error.was_repeated = reply.was_repeated
        return error

    def _own_state(self) -> _ProcessState:
        if self._state.pid != os.getpid():
            self._state = self._new_state()
        return self._state

    def _new_state(self) -> _ProcessState:
        # Importing requests and urllib3 takes long. A process that sends nothing does without them.
        from payments_integration.client.transport import Transport  # noqa: PLC0415

        return _ProcessState(os.getpid(), Transport(self._account), RateLimiter(self._monotonic))


def segment(value: str) -> str:
    """Quote an id as one segment of a path. Raises UnsendableRequest for a text that cannot be one."""
    # Dots cannot be quoted: libraries and proxies resolve "%2E%2E" like "..".
    if value in {"", ".", ".."} or len(value) > _MAX_ID or not value.isascii() or not value.isprintable():
        raise UnsendableRequest("an id is 1 to 255 visible ASCII characters and not a relative path")
    return quote(value, safe="")


def _route(path: str) -> str:
    """Return the path without ids: in each path of the interface, the second segment is an id (spec, "Operations")."""
    first, _, rest = path.removeprefix("/").partition("/")
    _id, slash, verb = rest.partition("/")
    return f"/{first}" + (f"/{{id}}{slash}{verb}" if rest else "")


def _text(value: object) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UnsendableRequest("a time in a filter needs a time zone")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnsendableRequest("a filter is not valid text") from None
    return text
