"""The history of a row: it names only objects that the user may view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.auth.models import User
from django.test import Client

from payments_integration.models import Payment
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database


def log(row: Any, words: str) -> None:
    who, _ = User.objects.get_or_create(username="sofia")
    LogEntry.objects.create(
        user=who, content_type=get_content_type_for_model(row), object_id=str(row.pk), action_flag=CHANGE,
        change_message=words,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "named", "rights"),
    [
        ("payment", "Refunded CLP 5,000: ref_5.", ["view_refund"]),
        ("payment", "Refund asked for (op_5)", ["view_operation"]),
        ("payout", "Canceled for pay_5", ["view_payment"]),
        ("operation", "Rejected: see pout_5", ["view_payout"]),
        ("payment", "Refunded: ref_5, by pout_5", ["view_refund", "view_payout"]),
    ],
)
def test_it_names_no_objects_that_the_user_may_not_view(
    staff: Callable[..., Client], model: str, named: str, rights: list[str]
) -> None:
    row = rows.MAKERS[model]()
    log(row, named)
    log(row, "Looked at.")
    for count in range(len(rights) + 1):
        html = page(staff(f"view_{model}", *rights[:count]), url(model, "history", row.pk))
        assert (named in html) is (count == len(rights)), count
        assert "Looked at." in html


def test_it_names_the_row_itself_to_a_user_who_may_view_only_this_row(
    staff: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_mine(self: Any, request: Any, obj: Any = None) -> bool:
        return getattr(obj, "pk", None) == "pay_mine"

    monkeypatch.setattr(type(admin.site.get_model_admin(Payment)), "has_view_permission", only_mine)
    mine = rows.payment(id="pay_mine")
    log(mine, "Receipt of pay_mine sent again.")
    log(mine, "See pay_other.")
    for name in ("change", "history"):
        html = page(staff(), url("payment", name, mine.pk))
        assert "Receipt of pay_mine sent again." in html
        assert "pay_other" not in html


def test_a_page_without_entries_to_show_leads_to_the_other_pages(
    staff: Callable[..., Client],
) -> None:
    payment = rows.payment()
    for _number in range(101):
        log(payment, "Refunded: ref_5.")
    html = page(staff("view_payment"), url("payment", "history", payment.pk))
    assert "ref_5" not in html
    assert 'href="?p=2"' in html
