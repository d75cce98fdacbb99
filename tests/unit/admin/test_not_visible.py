"""What a user has no permission to view is named as not visible, so that it does not look empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, models
from django.test import Client
from django.test.utils import CaptureQueriesContext

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


@pytest.mark.parametrize("state", ["done", "awaiting_approval", "needs_person"])
def test_only_who_may_see_personal_data_reads_the_user_name_of_a_customer(
    staff: Callable[..., Client], state: str
) -> None:
    customer, colleague = User.objects.create_user("ana@example.com"), User.objects.create_user("bob", is_staff=True)
    payment = rows.payment(method_family="bank_transfer")
    refund = rows.refund(payment=payment)
    about: dict[str, str] = {"state": state, "target_id": payment.pk, "result_kind": "refund"}
    own, other = (
        rows.operation(**about, actor=f"{user.pk}:{user}", actor_id=str(user.pk), result_id=result_id)
        for user, result_id in ((customer, refund.pk), (colleague, "ref_other"))
    )
    cancel = rows.operation(
        operation="cancel_payment", state=state, target_id=payment.pk, actor=f"{customer.pk}:{customer}",
        actor_id=str(customer.pk), result_kind="payment", result_id=payment.pk, amount=None,
    )  # fmt: skip
    changes: list[models.Model] = [payment, refund, own, other, cancel]
    where = [url(str(row._meta.model_name), "change", row.pk) for row in changes]
    where += [url("operation", "changelist"), url("payment", "changelist")]
    seen = ("view_payment", "view_refund", "view_operation", "change_operation", "approve_operation")
    masked, personal = staff(*seen), staff(*seen, "view_personal_data")
    assert [each for each in where if "ana@example.com" in page(masked, each)] == []
    assert {url("operation", "changelist"), *where[:3]} <= {
        each for each in where if "ana@example.com" in page(personal, each)
    }
    assert all("bob" in page(masked, each) for each in (where[0], where[3], url("operation", "changelist")))


def test_the_names_of_staff_are_read_once(staff: Callable[..., Client], django_assert_max_num_queries: Any) -> None:
    client = staff("view_operation")
    for number in range(3):
        rows.operation(actor=f"{number}:x", actor_id=str(number))
    with CaptureQueriesContext(connection) as few:
        page(client, url("operation", "changelist"))
    for number in range(20):
        rows.operation(actor=f"{number}:x", actor_id=str(number))
    with django_assert_max_num_queries(len(few)):
        page(client, url("operation", "changelist"))
