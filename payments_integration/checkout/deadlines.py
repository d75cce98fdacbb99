"""Until when a payer has time."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.formats import date_format


@dataclass(frozen=True, slots=True)
class Deadline:
    #: In UTC.
    at: datetime
    #: In the current time zone and language, with the zone.
    text: str
    is_over: bool

    @property
    def iso(self) -> str:
        """For ``<time datetime>``."""
        return self.at.isoformat(timespec="seconds")


def deadline(*candidates: str | datetime | None) -> Deadline | None:
    """The first candidate that is a moment: ISO 8601 text with an offset, or an aware datetime.

    A time without a zone is no moment: nobody could tell which one is meant.
    """
    for candidate in candidates:
        at = _moment(candidate) if isinstance(candidate, str) else candidate
        if at is None or timezone.is_naive(at):
            continue
        # Times at the ends of the calendar do not exist in every zone.
        with contextlib.suppress(OverflowError, ValueError):
            return Deadline(at.astimezone(UTC), _text(at), at <= timezone.now())
    return None


def _moment(value: str) -> datetime | None:
    with contextlib.suppress(ValueError, OverflowError):
        return parse_datetime(value)
    return None


def _text(at: datetime) -> str:
    local = timezone.localtime(at)
    offset = date_format(local, "O")
    zone = "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:]}"
    return f"{date_format(local, 'DATETIME_FORMAT')} ({zone})"
