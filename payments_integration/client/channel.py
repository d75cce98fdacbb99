"""Requests with everything around them: guards, pacing, 429 and the judgement of the status."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from django.views.decorators.debug import sensitive_variables

from payments_integration import conf
from payments_integration.client.failures import TOO_MANY, failure, personal_texts
from payments_integration.client.pacing import Lane, Pacer
from payments_integration.client.reply import Reply
from payments_integration.exceptions import NoAnswer, ProviderError, RateLimited, UnsendableRequest

if TYPE_CHECKING:
    from payments_integration.client.transport import Transport

MAX_BODY_BYTES = 256 * 1024
#: Seconds that a call may spend waiting for pacing and on 429s.
INTERACTIVE_WAIT = 10.0
BACKGROUND_WAIT = 120.0

_MAX_KEY = 255
_MAX_ID = 255
#: Visible ASCII, spaces only inside: servers strip the ends, and then it is another key.
_KEY = re.compile(r"[!-~](?:[ -~]*[!-~])?")


@dataclass(frozen=True, slots=True)
class _Own:
    """What belongs to one process: sockets, locks and counters do not survive a fork."""

    pid: int
    transport: Transport
    pacer: Pacer


class Channel:
    """One account's way to the provider. Thread-safe, and safe to keep across a fork."""

    def __init__(
        self,
        account: conf.Account,
        *,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account = account
        self._sleep = sleep
        self._monotonic = monotonic
        self._own = self._fresh()

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        max_wait: float | None = None,
        background: bool = False,
    ) -> Reply:
        if max_wait is None:
            max_wait = BACKGROUND_WAIT if background else INTERACTIVE_WAIT
        return self._send("GET", path, params=params, max_wait=max_wait, background=background)

    @sensitive_variables("body")
    def post(self, path: str, body: bytes | None, *, idempotency_key: str, max_wait: float) -> Reply:
        if len(idempotency_key) > _MAX_KEY or not _KEY.fullmatch(idempotency_key):
            raise UnsendableRequest("an Idempotency-Key is 1 to 255 visible ASCII characters")
        if body is not None and len(body) > MAX_BODY_BYTES:
            raise UnsendableRequest(f"a request body is at most {MAX_BODY_BYTES} bytes")
        return self._send("POST", path, body=body, idempotency_key=idempotency_key, max_wait=max_wait)

    def delete(self, path: str, *, max_wait: float) -> Reply:
        return self._send("DELETE", path, max_wait=max_wait)

    @sensitive_variables("body", "params")
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
        """The 2xx reply, or ProviderError or NoAnswer.

        A 429 was not executed: the same request goes out again, with the same key, as long as ``max_wait``
        allows.
        """
        own = self._mine()
        lane: Lane = "read" if method == "GET" else "write"
        # Requests that were answered 429 count as waiting: whoever holds an operation for so long must be able to
        # rely on it that nothing leaves later.
        last_start = self._monotonic() + max_wait
        leave_reserve = background
        while True:
            wait = own.pacer.take(lane, leave_reserve=leave_reserve)
            if wait > 0:
                # One window is left to the others; then this call has its turn, or it would never come.
                leave_reserve = False
                error = RateLimited(
                    "waiting for the rate limit to reset would take too long; nothing was sent",
                    status_code=TOO_MANY,
                    code="rate_limited",
                    retry_after=wait,
                )
            else:
                reply = own.transport.exchange(method, path, params=params, body=body, idempotency_key=idempotency_key)
                own.pacer.learn(lane, reply.headers)
                if 200 <= reply.status_code < 300:
                    return reply
                refusal = self._refusal(reply, body)
                if not isinstance(refusal, RateLimited) or reply.status_code != TOO_MANY:
                    raise refusal
                error, wait = refusal, refusal.retry_after or 0.0
            if self._monotonic() + wait > last_start:
                raise error
            self._sleep(wait)

    def _refusal(self, reply: Reply, body: bytes | None) -> ProviderError | NoAnswer:
        # Apart from the frame that raises: reports of errors show the variables of every frame.
        return failure(reply, mask=(self._account.api_key, *personal_texts(body)))

    def _mine(self) -> _Own:
        if self._own.pid != os.getpid():
            self._own = self._fresh()
        return self._own

    def _fresh(self) -> _Own:
        from payments_integration.client.transport import Transport  # noqa: PLC0415  (heavy; loaded with a client)

        return _Own(os.getpid(), Transport(self._account), Pacer(self._monotonic))


def segment(value: str) -> str:
    """An id as one segment of a path, whatever characters it has."""
    # Dots cannot be quoted: every library and proxy on the way resolves "%2E%2E" like "..".
    if value in {"", ".", ".."} or len(value) > _MAX_ID or not value.isascii() or not value.isprintable():
        raise UnsendableRequest("an id is 1 to 255 visible ASCII characters and not a relative path")
    return quote(value, safe="")
