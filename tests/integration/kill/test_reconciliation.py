"""Killed anywhere in a pass over the events: the next one goes on, and the watermark never lies."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
import requests

from payments_integration.contrib.finance.models import BalanceChange
from payments_integration.models import (
    MIRRORS,
    AccountState,
    DueRefresh,
    Event,
    ObjectDispatch,
    StatusChange,
    deletion_allowed,
)
from payments_integration.testing.provider import API_KEY
from tests.factories.receivers.models import ReceiverCall
from tests.integration.kill.consistency import assert_all_in_order
from tests.integration.kill.site import Point, Site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.promise(4)]

PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
PAGE = 2
#: What a pass writes.
EVERYTHING: tuple[type[Any], ...] = (
    *(StatusChange, Event, BalanceChange, DueRefresh, ObjectDispatch, AccountState, ReceiverCall),
    *MIRRORS.values(),
)
TOO_MANY = 400


@pytest.fixture
def missed(site: Site) -> Site:
    """A site that missed three pages of events, two hours ago, and was complete half an hour before them."""
    headers = {"Authorization": f"Bearer {API_KEY}", "Idempotency-Key": "the payment"}
    answer = requests.post(f"{site.sandbox.url}/v1/payments", json=PAYMENT, headers=headers, timeout=5)
    site.sandbox.engine.pay(answer.json()["id"])
    assert len(site.sandbox.engine.events) == 5, "three pages"
    site.later(120)
    site.page_size = PAGE
    forget(site)
    return site


def forget(site: Site) -> None:
    """As it was before the first pass."""
    with deletion_allowed():
        for model in EVERYTHING:
            model._default_manager.all().delete()
    first = moment(site.sandbox.engine.events[0])
    AccountState.objects.create(account="default", watermark=first - timedelta(minutes=30))


def assert_honest(site: Site) -> None:
    """Up to the watermark there is no event that the inbox lacks."""
    watermark = AccountState.objects.get().watermark
    assert watermark is not None
    stored = set(Event.objects.values_list("pk", flat=True))
    complete = {event["id"] for event in site.sandbox.engine.events if moment(event) <= watermark}
    assert complete <= stored


def moment(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(event["created_at"])


def pages_read(site: Site, since: int) -> int:
    return sum(entry["operation"] == "list_events" for entry in site.sandbox.engine.requests[since:])


WRITE = "payments_integration.db.claims:Held.write"
RECEIVE = "payments_integration.inbox:receive_many"
#: Where it dies, and how many requests the next pass has to make: one asks for the time, then what is left of the
#: three pages, and one for what came to be meanwhile, where that is a window of its own.
POINTS = {
    "the first page came, nothing of it is stored": (Point(RECEIVE), 1 + 3),
    "the second page is stored, its cursor is not": (Point(RECEIVE, after=True, nth=2), 1 + 2 + 1),
    "between the second page and the third": (Point(WRITE, after=True, nth=2, having="cursor"), 1 + 1 + 1),
    "after the last page": (Point(RECEIVE, after=True, nth=3), 1 + 1 + 1),
    "all applied, held back": (Point("payments_integration.inbox:release"), 1 + 1 + 1),
    "released, the watermark not moved": (Point(WRITE, having="watermark"), 1 + 1 + 1),
    "the watermark is moved, nothing dispatched": (Point(WRITE, after=True, having="watermark"), 1 + 1),
}


@pytest.mark.case(52)
@pytest.mark.parametrize("where", POINTS)
def test_a_killed_pass_is_resumed(missed: Site, where: str) -> None:
    point, left = POINTS[where]
    before = AccountState.objects.get().watermark
    assert missed.run("reconcile", point=point).killed
    state = AccountState.objects.get()
    assert (state.watermark == before) is (where != "the watermark is moved, nothing dispatched")
    assert_honest(missed)
    assert not ReceiverCall.objects.exists(), "not before the window is complete"
    # While the claim of the dead process is valid, no other process begins.
    assert missed.run("reconcile").result["state"] == "skipped"
    missed.later(0.5)
    since = len(missed.sandbox.engine.requests)
    run = missed.run("reconcile").result
    assert (run["state"], run["error"]) == ("done", "")
    assert pages_read(missed, since) == left
    missed.recover()
    assert Event.objects.count() == len(missed.sandbox.engine.events)
    assert_honest(missed)
    assert_all_in_order(missed.sandbox)


@pytest.mark.case(52)
@pytest.mark.parametrize("has_receivers", [False, True])
def test_a_kill_at_any_boundary_of_a_pass_loses_nothing(missed: Site, has_receivers: bool) -> None:
    missed.has_receivers = has_receivers
    killed: list[str] = []
    # With receivers there are many more: every ninth.
    for n in range(1, TOO_MANY, 9 if has_receivers else 1):
        forget(missed)
        end = missed.run("reconcile", die_at=n)
        assert_honest(missed)
        if not end.killed:
            break
        killed.append(end.killed)
        missed.later(0.5)
        run = missed.run("reconcile").result
        assert (run["state"], run["error"]) == ("done", "")
        missed.recover()
        assert Event.objects.count() == len(missed.sandbox.engine.events)
        assert_honest(missed)
        assert_all_in_order(missed.sandbox, dispatched=has_receivers)
    assert len(killed) > (10 if has_receivers else 30)
