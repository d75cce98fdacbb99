"""Replaying what was told or parked: by button or by action, only for those who may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from payments_integration.models import EventState
from tests.unit.admin import rows
from tests.unit.admin.conftest import page, url

Callbacks = Any


@pytest.mark.parametrize("model", ["event", "statuschange"])
def test_the_button_has_a_parked_row_told_again(
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


def test_the_action_replays_what_can_be_and_says_what_cannot(
    boss: Client, woken: list[str], django_capture_on_commit_callbacks: Callbacks
) -> None:
    states = {
        EventState.PARKED: EventState.APPLIED,
        EventState.DONE: EventState.APPLIED,
        EventState.PENDING: EventState.PENDING,
        EventState.QUARANTINED: EventState.QUARANTINED,
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
    told = [str(message) for message in response.context["messages"]]
    assert told[0].startswith("2 will be told")
    assert told[1].startswith("2 were left out")
    assert LogEntry.objects.count() == 2


def test_the_action_needs_its_permission(staff: Callable[..., Client], nothing_called: list[str]) -> None:
    row = rows.event(state=EventState.PARKED)
    form = {"action": "replay_selected", "_selected_action": [row.pk]}
    staff("view_event").post(url("event", "changelist"), form)
    assert nothing_called == []
    staff("view_event", "replay_event").post(url("event", "changelist"), form)
    assert nothing_called == ["replay"]
