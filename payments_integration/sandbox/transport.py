"""Sending one delivery: the signature, and a single POST ("Webhook signature", "Events")."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeAlias

import requests

ACK_TIMEOUT: Final = 10.0

# (url, headers, body) -> HTTP status; raises when there is no answer
Transport: TypeAlias = Callable[[str, dict[str, str], bytes], int]


class NotAcknowledgedError(Exception):
    """No usable answer came, or it came too late."""


def signature(body: bytes, secrets: list[str], unix_time: int) -> str:
    """The value of ``Service-Signature``: ``t=…`` and one ``v1=…`` per secret, HMAC-SHA256 over ``<t>.<body>``."""
    signed = str(unix_time).encode() + b"." + body
    digests = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={unix_time}", *(f"v1={digest}" for digest in digests)])


class HttpTransport:
    """POSTs over real HTTP: no redirects, no proxies, no .netrc. Its connections live as long as its ``with``
    block.
    """

    def __init__(self, ack_timeout: float = ACK_TIMEOUT) -> None:
        self._ack_timeout = ack_timeout
        self._session = requests.Session()
        self._session.trust_env = False

    def __enter__(self) -> HttpTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session.close()

    def __call__(self, url: str, headers: dict[str, str], body: bytes) -> int:
        """The status of the answer; its body is not waited for. Raises NotAcknowledgedError."""
        began = time.monotonic()
        try:
            with self._session.post(
                url, data=body, headers=headers, timeout=self._ack_timeout, allow_redirects=False, stream=True
            ) as response:
                status = response.status_code
        except (requests.RequestException, ValueError, OSError) as error:
            raise NotAcknowledgedError(f"{type(error).__name__}: {error}") from error
        if time.monotonic() - began > self._ack_timeout:
            raise NotAcknowledgedError(f"answered {status} after more than {self._ack_timeout:g} seconds")
        return status
