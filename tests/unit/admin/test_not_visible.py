"""What a user has no permission to view is named as not visible, so that it does not look empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database

OVERVIEW = "/admin/payments_integration/"
#: How each such text begins.
MARK = "Not visible to you"


def test_the_overview_names_what_it_leaves_out(staff: Callable[..., Client]) -> None:
    html = page(staff("view_payment", "view_balance"), OVERVIEW)
    assert f"{MARK}: refunds, payouts, operations, technical state." in html
    technical = ("event", "duerefresh", "erasure", "accountstate", "reconciliationrun", "webhookendpoint")
    everything = ("payment", "refund", "payout", "balance", "operation", *technical)
    assert MARK not in page(staff(*(f"view_{model}" for model in everything)), OVERVIEW)
    without_runs = (f"view_{model}" for model in everything if model != "reconciliationrun")
    assert f"{MARK}: technical state." in page(staff(*without_runs), OVERVIEW)


def test_the_technical_page_names_what_it_leaves_out(boss: Client, staff: Callable[..., Client]) -> None:
    where = url("reconciliationrun", "technical")
    html = page(staff("view_event", "view_operation", "view_erasure", "view_accountstate", "view_duerefresh"), where)
    assert f"{MARK}: reconciliation runs, webhook endpoints." in html
    assert MARK not in page(boss, where)


def test_a_section_of_a_page_is_not_shown_as_empty(boss: Client, staff: Callable[..., Client]) -> None:
    where = url("payment", "change", rows.payment().pk)
    html = page(staff("view_payment"), where)
    assert f'<h2>Refunds</h2>\n  <p class="pi-more">{MARK}.</p>' in html
    assert f"{MARK}: events, status changes, operations." in html
    assert "None." not in html
    html = page(boss, where)
    assert MARK not in html
    assert html.count("None.") == 1, "of the records; without refunds there is no table of them"


def test_a_search_names_what_it_did_not_search(boss: Client, staff: Callable[..., Client]) -> None:
    where = f"{url('payment', 'search')}?q=nothing"
    assert f"{MARK}: payouts, refunds, deposit references, operations." in page(staff("view_payment"), where)
    assert MARK not in page(boss, where)
