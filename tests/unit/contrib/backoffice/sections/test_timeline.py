"""The timeline: every source in one list, newest first, of limited length, and only what the user may see."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.admin.sections import timeline
from tests.factories import rows
from tests.unit.admin.conftest import page, url

MODELS = ("payment", "payout", "refund", "depositreference")


def shown(client: Client, row: Any) -> list[str]:
    """The entries of a row's page, from the top."""
    html = page(client, url(row._meta.model_name, "change", row.pk))
    column = html.split('<ol class="pi-timeline">')
    return [] if len(column) == 1 else column[1].split("</ol>")[0].split("<li>")[1:]


def log(row: Any, text: str, **fields: Any) -> LogEntry:
    user = User.objects.filter(username="luz").first() or User.objects.create_user("luz")
    return LogEntry.objects.create(
        user=user, content_type=get_content_type_for_model(row), object_id=str(row.pk), action_flag=CHANGE,
        change_message=text, **fields,
    )  # fmt: skip


def after(seconds: float) -> Any:
    return rows.AT + timedelta(seconds=seconds)


@pytest.mark.parametrize("model", MODELS)
def test_the_timeline_has_every_source_newest_first(boss: Client, model: str) -> None:
    row = rows.MAKERS[model]()
    asked = rows.operation(
        target_id=row.object_id, actor="900:maria", approved_by="901:luz", approved_at=after(0.5),
        request_ids=["req_7", "req_8"], created_at=after(0),
    )  # fmt: skip
    event = rows.event(row, created_at=after(1), state="parked")
    step = rows.change(row, event=event, at=after(1), previous_status="created", status="done")
    log(row, "Refunded 5.", action_time=after(2))
    log(asked, "Approved.", action_time=after(1.5))
    entries = shown(boss, row)
    assert len(entries) == 5
    for entry, words in zip(
        entries,
        (
            ("luz: Refunded 5.",),
            ("luz: Approved.", url("operation", "change", asked.pk)),
            ("created → done", url("statuschange", "change", step.pk), url("event", "change", event.pk)),
            (display.event_name(event.type), event.pk, "parked: ", "by webhook", url("event", "change", event.pk)),
            ("refund", "USD\xa05.00", "by maria", "by luz", "req_7, req_8", url("operation", "change", asked.pk)),
        ),
        strict=True,
    ):
        for word in words:
            assert word in entry, (entry, word)
        assert '<time datetime="2025-03-04T' in entry


def test_the_operation_that_created_an_object_is_in_its_timeline_once(boss: Client) -> None:
    row = rows.refund()
    rows.operation(result_kind="refund", result_id=row.pk)
    canceled = rows.payment()
    rows.operation(operation="cancel_payment", target_id=canceled.pk, result_kind="payment", result_id=canceled.pk)
    assert len(shown(boss, row)) == 1
    assert len(shown(boss, canceled)) == 1


def badges(entry: str) -> list[tuple[str, str]]:
    return re.findall(r'pi-status pi-status-(\w+)">(.*?)<', entry)


@pytest.mark.parametrize(
    ("status", "tone"),
    [
        ("succeeded", "good"), ("returned", "bad"), ("failed", "bad"), ("processing", "open"), ("canceled", "quiet"),
        ("quarked", "odd"),
    ],
)  # fmt: skip
def test_an_operation_shows_what_became_of_its_refund(boss: Client, status: str, tone: str) -> None:
    payment = rows.payment()
    refund = rows.refund(payment=payment, status=status)
    rows.operation(target_id=payment.pk, result_kind="refund", result_id=refund.pk)
    for row in (payment, refund):
        (entry,) = shown(boss, row)
        assert badges(entry) == [(tone, status)]
    assert f'href="{url("refund", "change", refund.pk)}">{refund.pk}<' in shown(boss, payment)[0]


def test_an_operation_that_is_not_done_shows_its_own_state(boss: Client) -> None:
    payment = rows.payment()
    for state in ("unknown", "rejected", "needs_person"):
        rows.operation(target_id=payment.pk, state=state)
    rows.operation(target_id=payment.pk, operation="cancel_payment", result_kind="payment", result_id=payment.pk)
    assert [tone for entry in shown(boss, payment) for tone, _word in badges(entry)] == ["good", "bad", "bad", "open"]


def test_done_is_not_green_when_what_became_of_it_cannot_be_shown(staff: Callable[..., Client]) -> None:
    payment = rows.payment()
    refund = rows.refund(payment=payment, status="returned")
    rows.operation(target_id=payment.pk, result_kind="refund", result_id=refund.pk)
    (entry,) = shown(staff("view_payment", "view_operation"), payment)
    assert badges(entry) == [("quiet", "done")]
    (entry,) = shown(staff("view_payment", "view_operation", "view_refund"), payment)
    assert badges(entry) == [("bad", "returned")]


def test_a_refund_that_was_made_elsewhere_is_in_the_timeline_of_its_payment(
    boss: Client, staff: Callable[..., Client]
) -> None:
    payment = rows.payment()
    refund = rows.refund(payment=payment, status="returned", amount=300)
    (entry,) = shown(boss, payment)
    assert badges(entry) == [("bad", "returned")]
    assert url("refund", "change", refund.pk) in entry
    assert "USD\xa03.00" in entry
    assert shown(staff("view_payment"), payment) == []


def test_rows_of_other_objects_are_not_in_the_timeline(boss: Client) -> None:
    row, other = rows.payment(), rows.payment()
    rows.event(other)
    rows.event(row, account="second")
    rows.change(other)
    rows.operation(target_id=other.pk)
    rows.operation(target_id=row.pk, account="second")
    log(other, "Refunded 5.")
    payout = rows.payout(id=row.pk)
    log(payout, "Canceled.")
    assert shown(boss, row) == []


def test_each_source_needs_its_view_permission(staff: Callable[..., Client]) -> None:
    row = rows.payment()
    asked = rows.operation(target_id=row.pk, operation="cancel_payment")
    rows.change(row, event=rows.event(row, type="payment.odd"), status="quarked")
    log(asked, "Approved.")
    log(row, "Refreshed.")
    sees = {
        "view_event": "payment.odd",
        "view_statuschange": "quarked",
        "view_operation": "cancel of a payment",
    }
    for permission in sees:
        client = staff("view_payment", permission)
        entries = "".join(shown(client, row))
        html = page(client, url("payment", "change", row.pk))
        for other, text in sees.items():
            assert (text in entries) is (other == permission), (permission, other)
            listed = url(other.removeprefix("view_"), "changelist") + "?q="
            assert (listed in html) is (other == permission), (permission, other)
        assert "Refreshed." in entries
        assert ("Approved." in entries) is (permission == "view_operation")


def test_a_long_timeline_is_cut_and_links_to_the_lists(boss: Client) -> None:
    row = rows.payment()
    for number in range(timeline.ENTRIES + 5):
        rows.event(row, id=f"evt_number{number}", created_at=after(number))
        rows.operation(target_id=row.pk, created_at=after(-number - 1))
    with CaptureQueriesContext(connection) as queries:
        entries = shown(boss, row)
    assert len(queries) <= 20
    assert len(entries) == timeline.ENTRIES
    assert f"evt_number{timeline.ENTRIES + 4}<" in entries[0]
    assert "evt_number5<" in entries[-1]
    html = page(boss, url("payment", "change", row.pk))
    for model in ("event", "statuschange", "operation"):
        assert f'href="{url(model, "changelist")}?q={row.pk}"' in html
    assert f'href="{url("payment", "history", row.pk)}"' in html


def test_odd_values_are_shown_and_escaped(boss: Client) -> None:
    row = rows.payment(id="pay_odd-_.~1")
    rows.event(row, type=rows.ODD, source="quark", state="quarked")
    rows.change(row, previous_status="", status=rows.ODD)
    rows.operation(target_id=row.pk, operation=rows.ODD, actor=rows.ODD, amount=None, currency="", request_ids=[])
    log(row, rows.ODD)
    entries = "".join(shown(boss, row))
    assert entries.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 5
    assert "<script>" not in entries
    assert "new →" in entries


@pytest.mark.parametrize("model", MODELS)
def test_a_timeline_takes_a_constant_number_of_queries(staff: Callable[..., Client], model: str) -> None:
    row = rows.MAKERS[model]()
    names = ("event", "statuschange", "operation", "payment", "refund", "payout", "personal_data")
    client = staff(f"view_{model}", *(f"view_{name}" for name in names if name != model))

    def add() -> None:
        rows.change(row, event=rows.event(row))
        log(rows.operation(target_id=row.object_id), "Approved.")
        log(row, "Refreshed.")

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            shown(client, row)
        return len(queries)

    add()
    count()  # content types are read once
    one = count()
    for _ in range(5):
        add()
    assert count() == one
    assert one <= 20
