"""The page of the technical state: the rows that have no pages of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

from django.test import Client
from django.utils import timezone

from payments_integration.admin.shared.sections import ROWS
from tests.factories import rows
from tests.unit.admin.conftest import page, url


def where() -> str:
    return url("reconciliationrun", "technical")


def test_an_old_erasure_that_is_not_finished_is_not_hidden_by_newer_ones(boss: Client) -> None:
    rows.erasure(object_id="pay_waits", requested_at=timezone.now() - timedelta(days=3))
    for number in range(ROWS + 5):
        rows.erasure(object_id=f"pay_done_{number}", done_at=timezone.now())
    html = page(boss, where())
    assert "pay_waits" in html
    assert f"pay_done_{ROWS + 4}" in html
    assert "pay_done_0" not in html


def test_a_problem_leads_to_its_rows(boss: Client) -> None:
    rows.account_state(account="default", watermark=timezone.now(), clock_offset=400.0)
    html = page(boss, where())
    words = "our clock and the provider&#x27;s differ"
    assert words in html
    anchor = html.split(words)[0].rpartition("#")[2].partition('"')[0]
    assert f'id="{anchor}"' in html


def test_each_table_needs_the_permission_to_view_its_rows(staff: Callable[..., Client]) -> None:
    rows.due(object_id="ref_due")
    rows.erasure(object_id="pay_erased")
    html = page(staff("view_duerefresh"), where())
    assert "ref_due" in html
    assert "pay_erased" not in html
    html = page(staff("view_erasure"), where())
    assert "pay_erased" in html
    assert "ref_due" not in html


def test_it_names_the_time_of_its_figures(boss: Client) -> None:
    """Each request examines the account anew, so nothing is updated every minute."""
    assert re.search(r"As of [-0-9]+ [:0-9]+\. ", page(boss, where()))
