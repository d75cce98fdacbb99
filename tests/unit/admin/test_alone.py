"""The core's own pages, without the back office: plain, masked, and with every button."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from payments_integration.admin.base import MirrorAdmin
from payments_integration.admin.shared import masking
from payments_integration.models import MIRRORS, Event, Operation, Payment, Refund
from tests.factories import rows
from tests.unit.admin.alone import PAGES, site
from tests.unit.admin.conftest import browser, page, url
from tests.unit.admin.flows.test_refunds_with_provider import form_of, paid
from tests.unit.admin.routes import ROUTES, Route, address
from tests.unit.admin.shared.test_masking import SECRETS, personal_rows
from tests.unit.admin.test_routes import Place, sent, visit

__all__ = ["sent"]

pytestmark = [pytest.mark.slow, pytest.mark.urls("tests.unit.admin.alone"), pytest.mark.any_database]

MODELS = [model._meta.model_name or "" for model in PAGES]
NAMES = {pattern.name for model_admin in site._registry.values() for pattern in model_admin.get_urls()}
OWN = [route for route in ROUTES.values() if route.full_name in NAMES]
#: What a person can do here.
DEEDS = {
    "payment_refund", "payment_cancel", "payout_add", "payout_cancel", "operation_approve", "operation_reject",
    "operation_look-up", "operation_send-again", "operation_happened", "operation_others", "operation_never-happened",
    "event_replay", "statuschange_replay", "webhookendpoint_add", "webhookendpoint_rotate", "webhookendpoint_remove",
    "reconciliationrun_run", "reconciliationrun_technical",
}  # fmt: skip


def test_these_are_the_cores_classes() -> None:
    assert {type(found) for found in site._registry.values()} == {*PAGES.values()}
    assert all(found.__module__.startswith("payments_integration.admin.models.") for found in PAGES.values())
    assert {route.name for route in OWN} >= DEEDS
    assert not [name for name in NAMES if str(name).endswith(("_export", "_add-note", "_refund-selected"))]


@pytest.mark.parametrize("model", MODELS)
def test_each_object_is_listed_and_shown(boss: Client, model: str) -> None:
    row = rows.MAKERS[model]()
    where = url(model, "change", row.pk)
    assert f'href="{where}' in page(boss, url(model, "changelist"))
    assert 'class="readonly"' in page(boss, where)
    page(boss, url(model, "history", row.pk))


@pytest.mark.parametrize("value", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_a_filter_at_an_end_of_the_calendar_is_no_error(boss: Client, value: str) -> None:
    """Where the database cannot compare with such a time, the filter is left out."""
    answer = boss.get(url("payment", "changelist"), {"created_at__gte": value}, follow=True)
    assert answer.status_code == 200
    assert answer.redirect_chain == [] or answer.redirect_chain[0][0].endswith("?e=1")


def test_odd_rows_are_shown_and_their_markup_is_escaped(boss: Client) -> None:
    for row in rows.odd_rows():
        if row._meta.model_name in MODELS:
            for where in (url(row._meta.model_name, "changelist"), url(row._meta.model_name, "change", row.pk)):
                html = page(boss, where)
                assert "<script>alert" not in html, where
                assert 'href="javascript' not in html.lower(), where


def test_a_payment_is_shown_with_its_money_its_payer_and_its_records(boss: Client) -> None:
    payment = rows.payment(
        amount=1050, amount_received=1050, refunded_amount=50, fee=7, currency="USD", status="succeeded",
        merchant_reference="order-7", payer={"name": "Ana Soto"}, metadata={"shelf": "B4"}, failure_reason="late",
    )  # fmt: skip
    refund = rows.refund(payment=payment, amount=50, currency="USD")
    asked = rows.operation(target_id=payment.pk, result_kind="refund", result_id=refund.pk, actor="by hand")
    made = rows.operation(operation="create_payment", result_kind="payment", result_id=payment.pk)
    event = rows.event(payment)
    change = rows.change(payment, event=event)
    html = page(boss, url("payment", "change", payment.pk)).replace("\xa0", " ")
    for words in ("USD 10.50", "USD 0.50", "USD 0.07", "order-7", "Ana Soto", "B4", "late", refund.pk, "by hand"):
        assert words in html, words
    assert url("payment", "refund", payment.pk) in html
    for row in (refund, asked, made, event, change):
        assert f'href="{url(row._meta.model_name, "change", row.pk)}"' in html


@pytest.mark.parametrize("model", ["payment", "payout", "depositreference"])
def test_an_object_is_found_by_its_id_and_its_reference(boss: Client, model: str) -> None:
    wanted, other = rows.MAKERS[model](merchant_reference="order-7"), rows.MAKERS[model](merchant_reference="order-8")
    for term in (wanted.pk, "order-7"):
        html = page(boss, f"{url(model, 'changelist')}?q={term}")
        assert url(model, "change", wanted.pk) in html
        assert url(model, "change", other.pk) not in html


def test_a_list_is_filtered_by_day_and_by_status_with_djangos_filters(boss: Client) -> None:
    where = url("payment", "changelist")
    old = rows.payment(created_at=datetime(2025, 3, 4, tzinfo=UTC), status="failed")
    new = rows.payment(created_at=datetime(2025, 3, 5, tzinfo=UTC), status="succeeded")
    html = page(boss, where)
    assert "created_at__gte=" in html
    assert not [words for words in ("pi-tabs", "pi-days", "pi-chips") if words in html]
    for query, found in (
        ("created_at__gte=2025-03-05+00%3A00%3A00%2B00%3A00", new),
        ("created_at__lt=2025-03-05+00%3A00%3A00%2B00%3A00", old),
        ("status=failed", old),
    ):
        changes = boss.get(f"{where}?{query}").context["cl"]
        assert [row.pk for row in changes.result_list] == [found.pk], query
    assert boss.get(f"{where}?amount__gte=1").status_code == 400
    assert boss.get(f"{where}?created_at__gte=x").status_code == 302


@pytest.mark.parametrize("model", [name for name in MODELS if name != "reconciliationrun"])
def test_personal_data_is_masked_without_the_permission(staff: Callable[..., Client], model: str) -> None:
    row = personal_rows()[model]
    someone = staff(f"view_{model}")
    for where in (url(model, "change", row.pk), url(model, "changelist"), url(model, "history", row.pk)):
        html = page(someone, where)
        assert [secret for secret in SECRETS if secret in html] == [], where
    assert masking.MASK in page(someone, url(model, "change", row.pk))
    permitted = page(staff(f"view_{model}", "view_personal_data"), url(model, "change", row.pk))
    assert masking.MASK not in permitted
    assert any(secret in permitted for secret in SECRETS)


def test_every_shown_personal_field_of_a_mirror_is_masked() -> None:
    for model in MIRRORS.values():
        model_admin = site.get_model_admin(model)
        assert isinstance(model_admin, MirrorAdmin)
        shown = {str(name) for _title, options in model_admin.fieldsets for name in options["fields"]}
        assert {f"{name}_shown" for name in model.personal if name in model.mirrored} <= shown
        shown |= {str(name) for name in model_admin.list_display}
        personal = {f"{name}_shown" for name in ("extra", *model.personal)} | set(model.personal)
        assert shown & personal <= set(model_admin.personal)
        assert set(model_admin.personal) <= shown


def test_an_erased_object_says_so(boss: Client) -> None:
    payment = rows.payment(payer={}, erased_at=rows.AT)
    assert (
        "erased" in page(boss, url("payment", "change", payment.pk)).split("field-payer_shown")[1].split("</div>")[0]
    )


def test_every_page_and_button_answers(boss: Client, sent: list[str], woken: list[str]) -> None:
    places = []
    for route in OWN:
        row = route.row() if route.row else rows.MAKERS[route.model]()
        places.append(Place(route, row, address(route, row)))
    assert visit(boss, places, lambda route: bool(route.permissions)) == []


@pytest.mark.parametrize("route", [route for route in OWN if route.sends], ids=lambda route: route.name)
def test_a_button_sends_a_request(boss: Client, sent: list[str], route: Route) -> None:
    row = route.row() if route.row else rows.MAKERS[route.model]()
    boss.get(address(route, row))
    assert sent == []
    boss.post(address(route, row), route.filled(row))
    assert sent != []


@pytest.mark.parametrize(
    ("button", "fields", "state"),
    [
        ("reject", {"state": "awaiting_approval", "may_have_run": False}, "closed"),
        ("never-happened", {"state": "needs_person", "account": "gone"}, "closed"),
    ],
)
def test_a_decision_is_recorded(boss: Client, button: str, fields: dict[str, Any], state: str) -> None:
    row = rows.operation(**fields)
    form = {"idempotency_key": "key-of-the-page", "comment": "asked the provider"}
    assert url("operation", button, row.pk) in page(boss, url("operation", "change", row.pk))
    boss.post(url("operation", button, row.pk), form)
    decided = Operation.objects.get(pk=row.pk)
    assert decided.state == state
    assert "asked the provider" in decided.note


def test_a_parked_event_is_replayed(boss: Client, woken: list[str]) -> None:
    event = rows.event(state="parked")
    boss.post(url("event", "replay", event.pk))
    assert Event.objects.get(pk=event.pk).state != "parked"


@pytest.mark.django_db(transaction=True)
def test_a_refund_arrives_at_the_provider(payments_sandbox: Any) -> None:
    boss = browser(User.objects.create_superuser("boss"))
    payment: Payment = paid(payments_sandbox, "cl_webpay_card")
    assert url("payment", "refund", payment.pk) in page(boss, url("payment", "change", payment.pk))
    assert (
        boss.post(url("payment", "refund", payment.pk), {**form_of(boss, payment), "amount": "2500"}).status_code
        == 302
    )
    payments_sandbox.settle()
    assert Refund.objects.get().amount == 2500
