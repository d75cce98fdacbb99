"""What came back of an HTTP exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from payments_integration.exceptions import NoAnswer

_REQUEST_ID_HEADERS = ("X-Request-Id", "Request-Id")
_MAX_REQUEST_ID = 255


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, before anybody judges it.

    ``problem`` is empty when the body arrived whole; else it says what cut it short, and ``body`` is empty.
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
        """The provider's id of this request; empty when the headers name none."""
        for name in _REQUEST_ID_HEADERS:
            value = self.headers.get(name, "")
            if value and value.isascii() and value.isprintable():
                return value[:_MAX_REQUEST_ID]
        return ""

    def no_answer(self, why: str) -> NoAnswer:
        """The error for a reply that cannot be used. ``why`` names a place, never a value."""
        message = f"{self.method} {self.path}: {why} (HTTP {self.status_code})"
        return NoAnswer(message, status_code=self.status_code, request_id=self.request_id)
