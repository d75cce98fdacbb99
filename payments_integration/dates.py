"""Times as people read them, in the current time zone.

Staff read every time in one format. Payers read it in words, as their language writes it.
"""

from __future__ import annotations

from datetime import date, datetime

from django.utils.formats import date_format
from django.utils.timezone import is_aware, localtime
from django.utils.translation import get_language

#: Languages in which months and weekdays begin with a small letter. Django's catalogues of some of their countries
#: write them with a capital.
_SMALL_MONTHS = frozenset({"es", "pt"})


def moment(at: datetime) -> str:
    """A time to the second, for staff, so that the order within a minute is visible: ``2026-03-04 05:06:07``."""
    return _local(at).replace(tzinfo=None).isoformat(" ", "seconds")


def in_words(day: date, format_name: str = "DATETIME_FORMAT") -> str:
    """A day or a time in the active language: ``4 de março de 2026 às 05:06``. ``format_name``: one of Django's."""
    words = date_format(_local(day) if isinstance(day, datetime) else day, format_name)
    return words.lower() if (get_language() or "").split("-")[0] in _SMALL_MONTHS else words


def with_zone(at: datetime) -> str:
    """An aware time in words with its distance from UTC, for payers, whose clock may be another."""
    offset = date_format(localtime(at), "O")
    zone = "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:]}"
    return f"{in_words(at)} ({zone})"


def _local(at: datetime) -> datetime:
    return localtime(at) if is_aware(at) else at
