"""Every word of the admin can be translated, and times are in one format and one zone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from payments_integration.dates import in_words
from payments_integration.models import RefreshReason
from tests.factories import rows
from tests.marked import Words, mark_every_message, unmarked
from tests.unit.admin.conftest import page, url
from tests.unit.admin.routes import ROUTES, address

pytestmark = pytest.mark.any_database

OVERVIEW = "/admin/payments_integration/"
#: Values of the rows: addresses, ids, event types, and codes of the provider.
VALUES = re.compile(
    r"https?://[^\s⟦⟧]+|\b(?:acc|key|order|op|req)[-_]?\w+|\b[a-z]+_\w+|\b[a-z]+\.[a-z_]+\b|\b[A-Z]{2,5}\b"
)
#: Accounts, users and words that Django itself does not translate.
NAMES = {"default", "second", "ana", "Ana", "boss", "Id", "Search", "True", "False"}
#: The other apps of the site that is tested, in the navigation.
OTHER_APPS = {"Deposit", "Notices", "Orders", "Products", "Shop", "accounts"}


def untranslatable(html: str) -> set[str]:
    found = (unmarked(VALUES.sub(" ", text)) for text in Words(html).found)
    return {word for words in found for word in words} - NAMES - OTHER_APPS


def test_every_word_of_the_admin_is_translatable(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {model: make() for model, make in rows.MAKERS.items()}
    pages = [
        address(route, route.row() if route.row else plain[route.model])
        for route in ROUTES.values()
        if route.get == 200 and not route.name.endswith("_export")
    ]
    mark_every_message(monkeypatch)
    for where in (OVERVIEW, *pages):
        html = page(boss, where)
        assert "⟦" in html
        assert untranslatable(html) == set(), where


def test_an_untranslatable_word_would_be_found() -> None:
    assert untranslatable('<p>⟦Status⟧ pay_1 CLP</p><a aria-label="Show">⟦a ⟦b⟧⟧</a>') == {"Show"}


@pytest.mark.parametrize("reason", RefreshReason.values)
def test_the_reason_of_a_refresh_is_shown_in_words(boss: Client, reason: str) -> None:
    rows.due(reason=reason)
    html = page(boss, url("reconciliationrun", "technical"))
    assert f">{RefreshReason(reason).label}<" in html
    assert reason == "drift" or reason not in html


def test_every_page_with_times_names_the_zone_once(boss: Client, settings: Any) -> None:
    payment, operation = rows.payment(), rows.operation()
    settings.TIME_ZONE = "America/Santiago"
    for where in (
        OVERVIEW, url("reconciliationrun", "technical"), url("payment", "changelist"),
        url("payment", "change", payment.pk), url("operation", "change", operation.pk),
        f"{url('payment', 'search')}?q={payment.pk}",
    ):  # fmt: skip
        assert page(boss, where).count("Times are in the time zone America/Santiago.") == 1, where


def test_the_history_has_the_format_of_all_times(boss: Client) -> None:
    row = rows.event(state="parked")
    boss.post(url("event", "replay", row.pk))
    html = page(boss, url("event", "history", row.pk))
    assert re.search(r"<th scope=\"row\">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</th>", html)
    assert User.objects.get().username in html


def test_the_title_of_a_run_has_the_time_of_the_site_and_no_key(boss: Client, settings: Any) -> None:
    run = rows.run()
    settings.TIME_ZONE = "America/Santiago"
    with translation.override("es"):
        assert str(run) == "eventos default 2025-03-04 02:06:07"


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "March 4, 2025, 5:06 a.m."),
        ("es-mx", "4 de marzo de 2025 a las 05:06"),
        ("pt-br", "4 de março de 2025 às 05:06"),
    ],
)
def test_months_are_in_lower_case_where_the_language_writes_them_so(language: str, words: str) -> None:
    with translation.override(language):
        assert in_words(rows.AT) == words
