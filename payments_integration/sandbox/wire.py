"""Requests and answers of the API as plain data, and what is to happen on the connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .shapes import Wire


@dataclass(frozen=True)
class ApiRequest:
    """One HTTP request to the API. Header names are in lower case; ``operations`` maps HTTP methods to operations."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    operations: Mapping[str, str]
    object_id: str = ""


@dataclass(frozen=True)
class LineFault:
    """What the server does to the connection: ``reset``, ``truncate``, or ``drip`` in pieces with pauses."""

    kind: str
    delay: float = 0.0
    count: int = 1


@dataclass
class ApiAnswer:
    """One HTTP answer. ``line`` is for the server, None when all is well."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    line: LineFault | None = None


@dataclass
class Trace:
    """What is known of a request while it is handled, for the log."""

    request_id: str
    operation: str | None = None
    api_key: str | None = None
    fault: str | None = None
    replayed: bool = False

    def wire(self) -> Wire:
        """The trace as a plain dict."""
        return dict(vars(self))
