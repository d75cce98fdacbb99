"""Until when there is time: a moment, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.utils import timezone, translation

from payments_integration import dates
from payments_integration.checkout.actions import deadline, shown_action
from payments_integration.enums import Country
from payments_integration.models import DepositReference, Payment

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


@pytest.mark.parametrize(
    ("country", "text"),
    [
        ("MX", "March 3, 2026, 11:06 p.m. (UTC-06:00)"),
        ("BR", "March 4, 2026, 2:06 a.m. (UTC-03:00)"),
        ("CL", "March 4, 2026, 2:06 a.m. (UTC-03:00)"),
        ("PE", "March 4, 2026, 12:06 a.m. (UTC-05:00)"),
        ("US", "March 4, 2026, 2:06 p.m. (UTC+09:00)"),
    ],
)
def test_a_payer_reads_the_time_of_their_country(country: str, text: str) -> None:
    """Wherever the shop is; there, if the country is not one of the provider's."""
    action = {"type": "none", "expires_at": "2026-03-04T05:06:07Z"}
    payment = Payment(status="requires_action", amount=1, currency="USD", country=country, next_action=action)
    reference = DepositReference(status="active", country=country, details=action)
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        shown = [shown_action(obj) for obj in (payment, reference)]
        alone = shown_action(action)
    assert [found.until.text for found in shown if found and found.until] == [text, text]
    assert alone is not None
    assert alone.until is not None
    assert alone.until.text == "March 4, 2026, 2:06 p.m. (UTC+09:00)"


def test_every_country_has_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(dates._ZONES) == set(Country.values)
    monkeypatch.setitem(dates._ZONES, "MX", "America/Nowhere")  # as on a machine without a list of time zones
    with timezone.override(ZoneInfo("America/Sao_Paulo")):
        assert dates.with_zone(AT, "MX") == "March 4, 2026, 2:06 a.m. (UTC-03:00)"
