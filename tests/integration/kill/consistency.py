"""What must hold when every process has died or ended and the site has recovered."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from payments_integration.models import DueRefresh, Event, ObjectDispatch, Operation, StatusChange
from payments_integration.models.operations import OPEN_OPERATION_STATES
from payments_integration.testing import ProviderSandbox
from tests.factories.receivers.models import ReceiverCall
from tests.integration.mirror import assert_mirror_equals_provider


def assert_all_in_order(sandbox: ProviderSandbox, *, dispatched: bool = True) -> None:
    """Mirror and provider are equal, nothing is open, and everything was dispatched once, in order."""
    assert sandbox.engine.audit() == []
    assert_nothing_is_open()
    assert_mirror_equals_provider(sandbox)
    assert_changes_are_chains()
    if dispatched:
        assert_dispatched_once_and_in_order()


def assert_nothing_is_open() -> None:
    assert list(Event.objects.exclude(state="done").values_list("id", "state", "error")) == []
    assert list(StatusChange.objects.exclude(state="done").values_list("object_id", "state")) == []
    assert list(DueRefresh.objects.values_list("object_id", "reason", "error")) == []
    assert list(ObjectDispatch.objects.exclude(claim_token="").values_list("object_id", flat=True)) == []
    assert list(Operation.objects.filter(state__in=OPEN_OPERATION_STATES).values_list("pk", "state", "note")) == []


def assert_changes_are_chains() -> None:
    """Each change begins where the one before it ended; none stands twice."""
    chains: dict[str, list[StatusChange]] = defaultdict(list)
    for change in StatusChange.objects.order_by("pk"):
        chains[change.object_id].append(change)
    for object_id, chain in chains.items():
        assert chain[0].previous_status == "", object_id
        for before, after in pairwise(chain):
            assert before.status == after.previous_status, object_id
            assert before.at <= after.at, object_id


def assert_dispatched_once_and_in_order() -> None:
    """By the rows that the receivers wrote: every event and every change, once, oldest first per object."""
    events: dict[str, list[str]] = defaultdict(list)
    changes: dict[str, list[str]] = defaultdict(list)
    for note in ReceiverCall.objects.exclude(what="approved").order_by("pk"):
        (events if note.what.startswith("evt_") else changes)[note.object_id].append(note.what)
    happened: dict[str, list[str]] = defaultdict(list)
    for event in Event.objects.order_by("created_at", "pk"):
        happened[event.object_id].append(event.id)
    changed: dict[str, list[str]] = defaultdict(list)
    for change in StatusChange.objects.order_by("at", "pk"):
        changed[change.object_id].append(f"{change.previous_status}>{change.status}")
    assert events == happened
    assert changes == changed
