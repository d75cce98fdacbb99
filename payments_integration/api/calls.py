"""One method of one address, said once: what permission asks for, what the body holds, what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rest_framework.serializers import Serializer


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What ``permissions`` decides by and what the OpenAPI description shows."""

    #: The name of it in the description, and in generated clients.
    id: str
    summary: str
    description: str = ""
    #: The codename that a member of staff needs; empty: being one is enough.
    needs: str
    #: Whether a customer, who is not staff, may: with own rows alone.
    customers: bool = False
    #: The body, where it takes one. It describes; the service decides.
    takes: type[Serializer[Any]] | None = None
    #: One object of the answer.
    gives: type[Serializer[Any]]
    #: Whether the answer is a list of them.
    many: bool = False
    #: Of the answer when all went well.
    status: int = 200
    #: Further statuses of errors; those that every call has are not named.
    errors: tuple[int, ...] = ()
    #: Names of query parameters to their schema, on a call that is no list of rows.
    query: dict[str, dict[str, Any]] = field(default_factory=dict)
