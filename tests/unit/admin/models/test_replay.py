"""Replaying dispatched and parked rows, by button and by action, with permission."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from payments_integration import inbox
from payments_integration.models import Event, EventState, deletion_allowed
from tests import factories
from tests.conftest import Receiver
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url
from tests.unit.admin.flows.test_refund import hidden

Callbacks = Any


@pytest.mark.parametrize("model", ["event", "statuschange"])
def test_the_button_replays_a_parked_row(
    boss: Client, woken: list[str], django_capture_on_commit_callbacks: Callbacks, model: str
) -> None:
    row = rows.MAKERS[model](state=EventState.PARKED, attempts=6, error="Traceback …")
    assert "Traceback …" in page(boss, url(model, "change", row.pk))
    assert url(model, "replay", row.pk) in page(boss, url(model, "change", row.pk))
    with django_capture_on_commit_callbacks(execute=True):
        boss.post(url(model, "replay", row.pk))
    row.refresh_from_db()
    assert (row.state, row.attempts, row.error) == (EventState.APPLIED, 0, "")
    assert woken == ["default"]
    assert LogEntry.objects.get().object_id == str(row.pk)
    assert url(model, "replay", row.pk) not in page(boss, url(model, "change", row.pk))


@pytest.mark.promise(6)
@pytest.mark.parametrize("model", ["event", "statuschange"])
@pytest.mark.parametrize("by", ["button", "action"])
@pytest.mark.parametrize("state", [EventState.PARKED, EventState.DONE])
def test_a_second_click_replays_nothing_that_the_first_one_has_dispatched(
    boss: Client, woken: list[str], model: str, by: str, state: EventState
) -> None:
    row = rows.MAKERS[model](state=state, dispatched_at=timezone.now() if state == EventState.DONE else None)
    address = url(model, *(("replay", row.pk) if by == "button" else ("changelist",)))
    html = page(boss, url(model, *(("change", row.pk) if by == "button" else ("changelist",))))
    form = {"action": "replay_selected", "_selected_action": [row.pk], "seen_at": hidden(html)["seen_at"]}
    boss.post(address, form)
    row.refresh_from_db()
    assert row.state == EventState.APPLIED
    type(row).objects.update(state=EventState.DONE, dispatched_at=timezone.now())
    answer = boss.post(address, form, follow=True).content.decode()
    assert "replayed since this page was made" in answer
    row.refresh_from_db()
    assert row.state == EventState.DONE
    assert LogEntry.objects.count() == 1
    form["seen_at"] = hidden(page(boss, url(model, "change", row.pk)))["seen_at"]
    boss.post(address, form)
    row.refresh_from_db()
    assert row.state == EventState.APPLIED


def test_a_replay_is_in_the_history_whatever_the_key_of_its_form_is(boss: Client) -> None:
    """PostgreSQL refuses a NUL character with an error."""
    event = rows.event(state=EventState.PARKED)
    assert boss.post(url("event", "replay", event.pk), {"idempotency_key": "a\x00b"}).status_code == 302
    assert LogEntry.objects.get().get_change_message() == "Replayed."


def test_the_action_replays_what_can_be_replayed_and_counts_the_rest(
    boss: Client, woken: list[str], django_capture_on_commit_callbacks: Callbacks
) -> None:
    states = {
        EventState.PARKED: EventState.APPLIED,
        EventState.DONE: EventState.APPLIED,
        EventState.PENDING: EventState.PENDING,
        EventState.HELD: EventState.HELD,
        EventState.APPLIED: EventState.APPLIED,
    }
    chosen = {rows.event(state=state, account="second").pk: after for state, after in states.items()}
    untouched = rows.event(state=EventState.PARKED)
    with django_capture_on_commit_callbacks(execute=True):
        response = boss.post(
            url("event", "changelist"), {"action": "replay_selected", "_selected_action": list(chosen)}, follow=True
        )
    found = {row.pk: row.state for row in type(untouched).objects.filter(pk__in=chosen)}
    assert found == chosen
    untouched.refresh_from_db()
    assert untouched.state == EventState.PARKED
    assert woken == ["second"]
    messages = [str(message) for message in response.context["messages"]]
    assert messages[0].startswith("2 will be dispatched again")
    assert messages[1].startswith("3 were left out")
    assert LogEntry.objects.count() == 2


@pytest.mark.promise(6)
def test_a_worker_that_runs_meanwhile_dispatches_the_older_events_of_an_object_first(
    boss: Client,
    woken: list[str],
    receiver: Receiver,
    dispatching_since: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list shows the newest first. Dispatched in this order, the older events would be stale."""
    payment = rows.payment()
    parked = [rows.event(payment, state=EventState.PARKED) for _ in range(3)]
    replay = inbox.replay

    def replay_and_dispatch(item: Any, **options: Any) -> bool:
        is_replayed = replay(item, **options)
        inbox.dispatch()
        return is_replayed

    monkeypatch.setattr(inbox, "replay", replay_and_dispatch)
    boss.post(
        url("event", "changelist"), {"action": "replay_selected", "_selected_action": [row.pk for row in parked]}
    )
    assert receiver.events == [(row.pk, False) for row in parked]


def quarantined(body: bytes) -> Event:
    return rows.event(
        id=f"quarantine_{hashlib.sha256(body).hexdigest()}", type="", object_kind="", object_id="", body=body,
        content_hash=hashlib.sha256(body).hexdigest(), state=EventState.QUARANTINED, error="not understood",
    )  # fmt: skip


def understood() -> bytes:
    """An event that an earlier version did not understand and this one does."""
    return factories.body(factories.event(factories.payment(), id="evt_good"))


@pytest.mark.parametrize("by", ["button", "action"])
@pytest.mark.parametrize("atomic_requests", [False, True])
@pytest.mark.django_db(transaction=True)
def test_quarantined_events_are_parsed_again(
    woken: list[str], monkeypatch: pytest.MonkeyPatch, by: str, atomic_requests: bool
) -> None:
    client = browser(User.objects.create_superuser("boss"))
    good, bad = quarantined(understood()), quarantined(b"[]")
    assert url("event", "replay", good.pk) in page(client, url("event", "change", good.pk))
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    messages = []
    if by == "button":
        for row in (good, bad):
            response = client.post(url("event", "replay", row.pk), follow=True)
            messages += [str(message) for message in response.context["messages"]]
    else:
        form = {"action": "replay_selected", "_selected_action": [good.pk, bad.pk]}
        response = client.post(url("event", "changelist"), form, follow=True)
        messages += [str(message) for message in response.context["messages"]]
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", False)
    assert set(Event.objects.values_list("pk", "state")) == {
        ("evt_good", EventState.PENDING), (bad.pk, EventState.QUARANTINED),
    }  # fmt: skip
    assert "left the quarantine" in messages[0]
    assert "in quarantine" in messages[1]
    assert len(messages) == 2
    assert set(woken) == {"default"}
    assert set(LogEntry.objects.values_list("object_id", flat=True)) == {good.pk, bad.pk}


def test_a_second_click_says_that_the_event_left_the_quarantine(boss: Client, woken: list[str]) -> None:
    event = quarantined(understood())
    address = url("event", "replay", event.pk)
    told = [list(boss.post(address, follow=True).context["messages"]) for _click in range(2)]
    assert ["left the quarantine" in str(message) for [message] in told] == [True, True]
    assert boss.post(url("event", "replay", "quarantine_0")).status_code == 404


def test_a_button_of_a_row_that_went_without_it_claims_nothing(boss: Client) -> None:
    payment = rows.payment()
    for entry in ("Canceled at the provider.", "To do: Assigned to eva."):
        LogEntry.objects.log_actions(User.objects.get().pk, [payment], CHANGE, entry)
    addresses = [url("payment", name, payment.pk) for name in ("cancel", "refresh")]
    with deletion_allowed():
        payment.delete()
    assert [boss.post(address).status_code for address in addresses] == [404, 404]


def test_held_and_pending_events_cannot_be_replayed(boss: Client) -> None:
    for state in EventState:
        row = rows.event(state=state)
        there = url("event", "replay", row.pk) in page(boss, url("event", "change", row.pk))
        assert there is (state in (EventState.PARKED, EventState.DONE, EventState.QUARANTINED)), state


def test_the_action_needs_its_permission(staff: Callable[..., Client], nothing_called: list[str]) -> None:
    row = rows.event(state=EventState.PARKED)
    form = {"action": "replay_selected", "_selected_action": [row.pk]}
    staff("view_event").post(url("event", "changelist"), form)
    assert nothing_called == []
    staff("view_event", "replay_event").post(url("event", "changelist"), form)
    assert nothing_called == ["replay"]
