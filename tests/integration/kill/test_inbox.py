"""Killed anywhere between a delivery and its dispatch: applied once, dispatched once, in order."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest
import requests

from payments_integration.models import Event, ObjectDispatch, Payment, StatusChange
from payments_integration.sandbox import Fault
from payments_integration.testing.provider import API_KEY
from tests.factories.receivers.models import ReceiverCall
from tests.integration.kill.consistency import assert_all_in_order
from tests.integration.kill.site import Point, Site

pytestmark = [pytest.mark.django_db(transaction=True)]

PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
#: More boundaries than any process here has.
TOO_MANY = 400


def pay(site: Site) -> str:
    """Somebody pays; the site knows nothing of it yet."""
    headers = {"Authorization": f"Bearer {API_KEY}", "Idempotency-Key": f"pay {len(site.sandbox.engine.payments)}"}
    answer = requests.post(f"{site.sandbox.url}/v1/payments", json=PAYMENT, headers=headers, timeout=5)
    payment = str(answer.json()["id"])
    site.sandbox.engine.pay(payment)
    return payment


def succeeded(site: Site, payment: str) -> dict[str, Any]:
    return next(
        event
        for event in site.sandbox.engine.events
        if event["type"] == "payment.succeeded" and event["data"]["id"] == payment
    )


@pytest.mark.case(47)
@pytest.mark.promise(1)
def test_the_sweeper_finds_events_without_a_wake_up(site: Site) -> None:
    payment = pay(site)
    site.woken = False
    (end,) = site.deliver_each("payment.succeeded", point=Point("payments_integration.wakeup:wake"))
    assert end.killed == "before wake"
    event = Event.objects.get(pk=succeeded(site, payment)["id"])
    assert (event.state, event.dispatched_at) == ("pending", None)
    assert not Payment.objects.exists()
    # No delivery helps: the schedule alone.
    site.run("sweep")
    assert Payment.objects.get().status == "succeeded"
    assert_all_in_order(site.sandbox)


@pytest.mark.case(48)
@pytest.mark.promise(2)
@pytest.mark.parametrize(
    "point",
    [
        Point("payments_integration.inbox:receive", after=True),
        Point("payments_integration.wakeup:wake", after=True),
        Point("django.core.handlers.base:BaseHandler.get_response", after=True),
    ],
    ids=str,
)
def test_a_delivery_that_was_stored_and_not_answered_is_a_duplicate_afterwards(site: Site, point: Point) -> None:
    payment = pay(site)
    (end,) = site.deliver_each("payment.succeeded", point=point)
    assert end.killed == str(point)
    stored = Event.objects.get(pk=succeeded(site, payment)["id"])
    (again,) = [item for item in site.sandbox.engine.pending_deliveries if item["event_id"] == stored.pk]
    assert again["attempts"] == 1
    before = list(Event.objects.order_by("pk").values_list("pk", "received_at"))
    site.later(60)
    (end,) = site.deliver_each("payment.succeeded")
    assert (end.killed, end.result) == ("", [200])
    assert list(Event.objects.order_by("pk").values_list("pk", "received_at")) == before
    site.recover()
    assert_all_in_order(site.sandbox)


APPLYING = {
    "the rows are written, the events not marked": Point("payments_integration.inbox.processing:_mark"),
    "the events are marked, nothing committed": Point("payments_integration.inbox.processing:_mark", after=True),
}
DISPATCHING = {
    "applied, nothing dispatched": Point("payments_integration.inbox:dispatch"),
    "before a receiver": Point("tests.conftest:Receiver.on_event", nth=2),
    "within the receivers": Point("tests.conftest:Receiver.on_event", after=True, nth=2),
    "dispatched, not marked": Point("payments_integration.inbox.calling:mark", nth=2),
    "marked, not committed": Point("payments_integration.inbox.calling:mark", after=True, nth=2),
    "dispatched, the next one not": Point("payments_integration.inbox.dispatching:_dispatch_next", after=True, nth=2),
    "claimed, nothing dispatched": Point("payments_integration.inbox.claiming:claim", after=True),
    "locked, no receiver called": Point("payments_integration.inbox.calling:_lock", after=True, nth=2),
}


@pytest.mark.case(49)
@pytest.mark.promise(2)
@pytest.mark.promise(6)
@pytest.mark.parametrize("where", [*APPLYING, *DISPATCHING])
def test_a_kill_while_applying_or_dispatching_loses_nothing(site: Site, where: str) -> None:
    payment = pay(site)
    site.woken = False
    site.deliver()
    assert site.run("sweep", point={**APPLYING, **DISPATCHING}[where]).killed
    changes = StatusChange.objects.filter(object_id=payment)
    if where in APPLYING:
        assert not changes.exists()
        assert set(Event.objects.values_list("state", flat=True)) == {"pending"}
    else:
        assert changes.count() == 1  # one per object and batch
        assert not Event.objects.filter(state="pending").exists()
        # What receivers wrote stands exactly where their event is marked.
        done = set(Event.objects.filter(state="done").values_list("pk", flat=True))
        assert set(ReceiverCall.objects.filter(what__startswith="evt_").values_list("what", flat=True)) == done
    site.recover()
    assert changes.count() == 1
    assert_all_in_order(site.sandbox)


@pytest.mark.case(47)
@pytest.mark.case(48)
@pytest.mark.case(49)
@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.promise(6)
def test_a_kill_at_any_boundary_of_a_delivery_loses_nothing(site: Site) -> None:
    """Stored, applied and dispatched in one request: each run pays another payment and dies one step later."""
    payments = [pay(site)]
    site.woken = False
    drop = site.sandbox.engine.faults.add(Fault("drop", event_type="payment.succeeded", times=None))
    site.deliver()
    site.recover()
    site.woken = True
    steps = len(site.run("deliver", requests=[site.request(succeeded(site, payments[0])["id"])]).passed)
    payments += [pay(site) for _ in range(steps)]
    site.deliver()
    site.recover()
    killed: list[str] = []
    for n, payment in enumerate(payments[1:], 1):
        request = site.request(succeeded(site, payment)["id"])
        killed.append(site.run("deliver", requests=[request], die_at=n).killed)
        site.recover()
    assert all(killed)
    assert drop.used == len(payments)
    # The provider had no answer: it comes again.
    site.sandbox.engine.faults.clear()
    for payment in payments:
        site.sandbox.engine.redeliver(succeeded(site, payment)["id"])
    site.deliver()
    site.recover()
    assert any(step.startswith("INSERT") and "payments_integration_event" in step for step in killed), "stored"
    assert killed.count("COMMIT") >= 3, "applied, claimed, dispatched"
    assert len(killed) > 25
    assert_all_in_order(site.sandbox)
    assert StatusChange.objects.filter(status="succeeded").count() == len(payments)


@pytest.mark.case(49)
@pytest.mark.promise(2)
@pytest.mark.promise(6)
def test_a_kill_at_any_boundary_of_the_sweeper_loses_nothing(site: Site) -> None:
    """One backlog, and process after process dies over it, each a step further on than the one before."""
    for _ in range(2):
        pay(site)
    site.woken = False
    site.deliver()
    for n in count(1):
        assert n < TOO_MANY
        end = site.run("sweep", die_at=n)
        site.later(0.25)
        if not end.killed:
            break
    assert n > 25
    site.recover()
    assert_all_in_order(site.sandbox)


@pytest.mark.case(117)
@pytest.mark.promise(6)
def test_a_kill_at_any_boundary_of_dispatch_costs_only_the_event_in_hand_an_attempt(site: Site) -> None:
    """A page of objects with several events each. Process after process dies over it, each a step further on."""
    for _ in range(3):
        pay(site)
    site.woken = False
    site.deliver()
    #: The item in hand when a process died, by its claim.
    in_hand: dict[str, str] = {}
    for n in count(1):
        assert n < TOO_MANY
        end = site.run("dispatch", die_at=n)
        for row in ObjectDispatch.objects.exclude(claim_token="").order_by("-turn"):
            in_hand[row.claim_token] = row.event_in_hand  # the lowest turn is the last one
        site.later(0.25)
        if not end.killed:
            break
    assert n > 25
    assert len(set(in_hand.values())) > 5
    site.recover()
    failed = Event.objects.filter(attempts__gt=0).values_list("pk", "attempts")
    assert dict(failed) == Counter(in_hand.values())
    assert_all_in_order(site.sandbox)


@pytest.mark.case(147)
@pytest.mark.promise(2)
@pytest.mark.promise(6)
def test_a_kill_at_any_boundary_of_a_group_costs_nobody_an_attempt(site: Site) -> None:
    """Each process dies over a backlog of its own, a step further on than the one before."""
    site.woken, site.database_only = False, True
    died_in_groups = 0
    for n in count(1):
        assert n < TOO_MANY
        pay(site)
        site.deliver()
        end = site.run("dispatch", die_at=n)
        died_in_groups += ObjectDispatch.objects.filter(grouping="grouped").exclude(claim_token="").exists()
        site.recover()
        assert not ObjectDispatch.objects.exclude(grouping="").exists()
        if not end.killed:
            break
    assert died_in_groups > 3
    assert not Event.objects.filter(attempts__gt=0).exists()
    assert_all_in_order(site.sandbox)


@pytest.mark.case(147)
@pytest.mark.promise(6)
@pytest.mark.parametrize(
    "point",
    [
        Point("payments_integration.inbox.groups:_lock", after=True),
        Point("tests.conftest:Receiver.on_event", nth=2),
        Point("tests.conftest:Receiver.on_event", after=True, nth=2),
        Point("payments_integration.inbox.groups:mark"),
        Point("payments_integration.inbox.groups:mark", after=True),
    ],
    ids=str,
)
def test_who_dies_over_a_group_again_is_charged(site: Site, point: Point) -> None:
    for _ in range(3):
        pay(site)
    site.woken, site.database_only = False, True
    site.deliver()
    assert site.run("dispatch", point=point).killed == str(point)
    assert not ReceiverCall.objects.exists()
    claimed = ObjectDispatch.objects.exclude(claim_token="")
    assert set(claimed.values_list("grouping", flat=True)) == {"grouped"}
    site.later(0.25)
    # They are dispatched alone now; the second item in hand is the culprit's.
    deadly = Point("tests.conftest:Receiver.on_event", nth=2)
    assert site.run("dispatch", point=deadly).killed == str(deadly)
    [in_hand] = (
        ObjectDispatch.objects.exclude(claim_token="").order_by("turn").values_list("event_in_hand", flat=True)[:1]
    )
    assert ReceiverCall.objects.filter(what__startswith="evt_").count() == 1
    site.recover()
    assert list(Event.objects.filter(attempts__gt=0).values_list("pk", "attempts")) == [(in_hand, 1)]
    assert_all_in_order(site.sandbox)
