"""Until when there is time: a moment, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.utils import timezone, translation

from payments_integration.checkout.actions import deadline

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def test_a_deadline_is_in_the_current_time_zone_and_language() -> None:
    with timezone.override(ZoneInfo("America/Sao_Paulo")):
        found = deadline("2026-03-04T05:06:07Z")
        assert found is not None
        assert found.text == "March 4, 2026, 2:06 a.m. (UTC-03:00)"
        with translation.override("pt-br"):
            again = deadline("2026-03-04T02:06:07-03:00")
            assert again is not None
            assert again.text.startswith("4 de março de 2026 às 02:06")
    assert found.at == again.at == AT
    assert found.iso == "2026-03-04T05:06:07+00:00"


def test_the_first_valid_time_is_the_deadline() -> None:
    for candidates in (["2026-03-04T05:06:07Z", None], ["soon", AT], [None, AT], ["2026-03-04T05:06:07", AT]):
        found = deadline(*candidates)
        assert found is not None
        assert found.at == AT


@pytest.mark.parametrize("value", [
    "", "soon", "2026-03-04", "2026-03-04T05:06:07", "2026-13-04T05:06:07Z", "1772600767", "05:06", "<b>", None,
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9" * 5000, "\ud800",
    "2026-03-04T05:06:07Z javascript:x", datetime(2026, 3, 4, 5, 6, 7),  # noqa: DTZ001
])  # fmt: skip
def test_a_text_that_is_not_a_time_is_not_a_deadline(value: Any) -> None:
    assert deadline(value) is None


def test_a_time_beyond_the_calendar_of_a_zone_is_not_a_deadline() -> None:
    with timezone.override(ZoneInfo("Pacific/Auckland")):
        assert deadline("9999-12-31T23:59:59Z") is None


def test_a_deadline_passes() -> None:
    with time_machine.travel(AT, tick=False):
        found, later = deadline(AT), deadline("2026-03-04T05:06:08Z")
    assert found is not None
    assert later is not None
    assert (found.is_over, later.is_over) == (True, False)
