"""Claim a row: one worker at a time has it, until it releases the row or its claim ends.

A claim is a token and an end, in two columns of the row (``models.Claimable``). The worker's later writes require the
token: a write that comes too late changes nothing. If a process dies, its claim ends by itself.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.utils import timezone

from payments_integration.db.transactions import updated

#: How far the clocks of our machines may differ, and how far one of them may be set back.
CLOCK_SLACK = timedelta(minutes=5)

#: Stands for the present time in SQL that is built once (``times_of``).
NOW = datetime(1970, 3, 1, tzinfo=UTC)


class ClaimLost(Exception):
    """The claim has ended, and another worker has the row. This one writes nothing more."""


def new_token() -> str:
    return uuid.uuid4().hex


class Claims(NamedTuple):
    """Claims of one kind: how long they last, and the prefix of their two columns."""

    length: timedelta
    prefix: str = ""

    def values(self, token: str, *, now: datetime | None = None) -> dict[str, Any]:
        """Return what a claim writes, or renews, in its row."""
        return {self._token: token, self._until: (now or timezone.now()) + self.length}

    def free_values(self) -> dict[str, Any]:
        """Return the values of a row that no worker has."""
        return {self._token: "", self._until: None}

    def free(self, *, now: datetime | None = None) -> Q:
        """Match rows that no worker has: without a claim, or with an expired one."""
        return Q(**{self._until: None}) | expired(self._until, self.length, now=now)

    def take(self, row: QuerySet[Any], where: Q = Q(), **values: Any) -> Held | None:  # noqa: B008  (immutable)
        """Claim a row and write further values, in one statement. None if it is claimed, or is not ``where``."""
        token = new_token()
        taken = updated(row.filter(where, self.free()), **self.values(token), **values)
        return Held(self, row, token) if taken else None

    def seize(self, row: QuerySet[Any]) -> Held:
        """Claim a row even from the worker that has it. That worker writes nothing more."""
        token = new_token()
        updated(row, **self.values(token))
        return Held(self, row, token)

    @property
    def _token(self) -> str:
        return f"{self.prefix}claim_token"

    @property
    def _until(self) -> str:
        return f"{self.prefix}claimed_until"


class Held(NamedTuple):
    """A claim that this worker has on a row. As a context, it ends with the block."""

    claims: Claims
    row: QuerySet[Any]
    token: str

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ClaimLost):
            self.release()

    def write(self, **values: Any) -> None:
        """Renew the claim, and write values in the same statement. Raises ClaimLost."""
        self._write(self.claims.values(self.token) | values)

    def renew(self) -> None:
        self.write()

    def release(self, **values: Any) -> None:
        """End the claim, and write values in the same statement. Raises ClaimLost."""
        self._write(self.claims.free_values() | values)

    def _write(self, values: dict[str, Any]) -> None:
        if not updated(self.row.filter(**{self.claims._token: self.token}), **values):
            raise ClaimLost(f"another worker has taken this {self.row.model._meta.verbose_name}")


def expired(field: str, length: timedelta, *, now: datetime | None = None) -> Q:
    """Match rows whose claim or wait, which lasts ``length`` at most, ended at ``field``. Null does not count.

    A time later than any claim can end was written while a clock was ahead: it counts as ended too.
    """
    now = now or timezone.now()
    return Q(**{f"{field}__lte": now}) | Q(**{f"{field}__gt": now + length + CLOCK_SLACK})


def times_of(now: datetime, *lengths: timedelta) -> dict[datetime, datetime]:
    """Map the times in a query with ``NOW`` and waits of these lengths to the times of a call."""
    return {NOW + length: now + length for length in (timedelta(0), *(each + CLOCK_SLACK for each in lengths))}


def long_ago(field: str, length: timedelta, *, now: datetime | None = None) -> Q:
    """Match rows for which ``field``, a time in the past, was ``length`` ago or earlier. Null does not count.

    A time in the future was written while a clock was ahead: it counts too.
    """
    return expired(field, length, now=(now or timezone.now()) - length)
