"""Compute the site's days, and write times as people read them.

A day is one of Django's ``TIME_ZONE``, for every user. So a list, its export, the overview and the cash book agree,
even if a middleware activates each user's own time zone.

Staff read every time in one format. Payers read it in words, as their language writes it, and in the zone of the
payment's country.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils.formats import date_format
from django.utils.timezone import get_current_timezone, get_default_timezone, is_aware, localtime, make_aware, now
from django.utils.translation import get_language

#: Languages in which months and weekdays begin with a small letter. Django's catalogues of some of their countries
#: write them with a capital.
_SMALL_MONTHS = frozenset({"es", "pt"})
_ZONES = {
    "CL": "America/Santiago", "CO": "America/Bogota", "EC": "America/Guayaquil", "PE": "America/Lima",
    "MX": "America/Mexico_City", "BR": "America/Sao_Paulo",
}  # fmt: skip


def on_site(at: datetime) -> datetime:
    """Return a time in the site's time zone. A naive time stays as it is."""
    return localtime(at, get_default_timezone()) if is_aware(at) else at


def from_site(at: datetime) -> datetime:
    """Make a naive time of the site's clocks aware. If clocks skip it, as if they had not been changed yet."""
    return make_aware(at, get_default_timezone())


def day_of(at: datetime) -> date:
    """Return the site's day at a time."""
    return on_site(at).date()


def today() -> date:
    return day_of(now())


def start_of(day: date) -> datetime:
    """Return when a day of the site begins. If clocks skip midnight, its first moment."""
    return from_site(datetime.combine(day, time.min))


def end_of(day: date) -> datetime:
    """Return the last moment of a day of the site."""
    return start_of(day + timedelta(days=1)) - timedelta(microseconds=1)


def moment(at: datetime) -> str:
    """Write a time to the second, for staff, so that the order within a minute is visible: ``2026-03-04 05:06:07``."""
    return on_site(at).replace(tzinfo=None).isoformat(" ", "seconds")


def short(at: datetime) -> str:
    """Write a time to the minute in the active language, for lists of staff: ``25 nov, 15:55``.

    It has its year if that is not this year.
    """
    local = on_site(at)
    return in_words(local, "j M, H:i" if local.year == today().year else "j M Y, H:i")


def in_words(day: date, format_name: str = "DATETIME_FORMAT") -> str:
    """Write a day or a time in the active language and one of Django's formats: ``4 de março de 2026 às 05:06``."""
    words = date_format(day, format_name)
    return words.lower() if (get_language() or "").split("-")[0] in _SMALL_MONTHS else words


def with_zone(at: datetime, country: str = "") -> str:
    """Write an aware time in words with its distance from UTC, for payers: where most people of their country live.

    ``country`` is the payment's, ISO 3166-1 alpha-2. A country that is not in the spec: in the current time zone.
    """
    local = localtime(at, _zone_of(country))
    offset = date_format(local, "O")
    name = "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:]}"
    return f"{in_words(local)} ({name})"


def _zone_of(country: str) -> tzinfo:
    # A machine may have no list of time zones.
    with suppress(ZoneInfoNotFoundError):
        if country in _ZONES:
            return ZoneInfo(_ZONES[country])
    return get_current_timezone()
