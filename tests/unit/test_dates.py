"""The site's days, and what would read the user's time zone instead."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.utils import timezone, translation

import payments_integration
from payments_integration import dates

PACKAGE = Path(payments_integration.__file__).parent
#: They convert to the user's time zone: filters and tags of templates, and lookups of a query.
IN_TEMPLATES = re.compile(r"(?<!\|utc)\|(?:date|time|localtime)\b|{%\s*(?:now|get_current_timezone|localtime)\b")
IN_QUERIES = re.compile(
    r"\w__(?:date|time|day|week|week_day|month|quarter|year|hour)\b|\bdate_hierarchy\s*=|\.datetimes\("
)


def at(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc,arg-type]


def test_days_are_those_of_the_site_whatever_the_zone_of_the_request(settings: Any) -> None:
    settings.TIME_ZONE = "America/Santiago"
    with timezone.override("Asia/Tokyo"):
        assert dates.day_of(at(2026, 1, 1, 2, 59)) == date(2025, 12, 31)
        assert dates.start_of(date(2026, 1, 1)) == at(2026, 1, 1, 3)
        assert dates.moment(at(2026, 1, 1, 2, 59)) == "2025-12-31 23:59:00"


def test_a_day_without_midnight_begins_with_its_first_moment(settings: Any) -> None:
    # Chile's clocks go from midnight to one o'clock.
    settings.TIME_ZONE = "America/Santiago"
    assert dates.start_of(date(2025, 9, 7)).astimezone(UTC) == at(2025, 9, 7, 4)
    assert dates.day_of(dates.start_of(date(2025, 9, 7))) == date(2025, 9, 7)
    assert dates.start_of(date(2025, 9, 8)).astimezone(UTC) == at(2025, 9, 8, 3)


@pytest.mark.parametrize("pattern", ["*.html", "*.txt"])
def test_no_template_converts_to_the_users_time_zone(pattern: str) -> None:
    found = {str(path) for path in PACKAGE.rglob(pattern) if IN_TEMPLATES.search(path.read_text())}
    assert not found


def test_no_query_converts_to_the_users_time_zone() -> None:
    sources = (path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)
    assert not {str(path) for path in sources if IN_QUERIES.search(path.read_text())}


@pytest.mark.parametrize(
    "text", ['{{ at|date:"c" }}', "{{ at|time }}", "{% now 'Y' %}", "{% get_current_timezone as z %}"]
)
def test_such_a_template_would_be_found(text: str) -> None:
    assert IN_TEMPLATES.search(text)
    assert not IN_TEMPLATES.search('{{ at|utc|date:"c" }}')


@pytest.mark.parametrize("text", ["created_at__date=day", '"created_at__month"', "date_hierarchy = 'at'"])
def test_such_a_query_would_be_found(text: str) -> None:
    assert IN_QUERIES.search(text)


@pytest.mark.parametrize(
    ("language", "when", "shown"),
    [
        ("en", datetime(2026, 11, 25, 18, 55, 9, tzinfo=UTC), "25 Nov, 15:55"),
        ("es", datetime(2026, 11, 25, 18, 55, 9, tzinfo=UTC), "25 nov, 15:55"),
        ("pt-br", datetime(2026, 11, 25, 18, 55, 9, tzinfo=UTC), "25 nov, 15:55"),
        # The year is that of the site's clocks.
        ("es", datetime(2026, 1, 1, 2, 0, tzinfo=UTC), "31 dic 2025, 23:00"),
    ],
)
def test_a_list_shows_a_time_in_few_words(settings: Any, language: str, when: datetime, shown: str) -> None:
    settings.TIME_ZONE = "America/Santiago"
    with time_machine.travel(datetime(2026, 11, 26, tzinfo=UTC)), translation.override(language):
        assert dates.short(when) == shown
