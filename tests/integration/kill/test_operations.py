"""Killed anywhere between a call and its answer: executed once or not at all, under the same key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from payments_integration import projection, services
from payments_integration.exceptions import ApprovalRequired
from payments_integration.models import MIRRORS, AccountState, Operation
from payments_integration.sandbox import Fault
from tests.factories.receivers.models import ReceiverCall
from tests.integration.kill.consistency import assert_all_in_order
from tests.integration.kill.site import Point, Site
from tests.servers import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.promise(5)]

DESTINATION = {
    "type": "bank_account",
    "account_number": "00123456789",
    "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "12.345.678-5"},
}
PAYMENT: dict[str, Any] = {"currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
PAYOUT: dict[str, Any] = {
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_transfer",
    "destination": DESTINATION,
}
#: More boundaries than any call has.
TOO_MANY = 200

Arguments = Callable[[int], dict[str, Any]]


@pytest.fixture(params=["create_payment", "create_payout", "create_refund"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def nth(site: Site, name: str) -> Arguments:
    """Arguments of the nth call: its amount distinguishes the objects that it made from all others."""
    common: dict[str, Any] = PAYMENT if name == "create_payment" else PAYOUT
    if name == "create_refund":
        paid = site.run("call", function="create_payment", arguments={"amount": 900_000, **PAYMENT}).result
        site.sandbox.engine.pay(paid)
        site.deliver()
        site.recover()
        common = {"payment": paid}
    return lambda n: {**common, "amount": 1_000 + n, "idempotency_key": f"key {n}"}


def made(site: Site, name: str) -> Counter[int]:
    """How many objects of each amount there are at the provider."""
    engine = site.sandbox.engine
    items = {"create_payment": engine.payments, "create_payout": engine.payouts, "create_refund": engine.refunds}
    return Counter(item["amount"] for item in items[name].values() if item["amount"] < 900_000)


def sent_keys(site: Site, name: str) -> set[str]:
    """The keys under which requests came."""
    posts = [entry for entry in site.sandbox.engine.requests if entry["operation"] == name]
    return {entry["idempotency_key"] for entry in posts}


def recorded() -> set[int]:
    """The amounts of what the ledger knows."""
    return {int(operation.amount or 0) for operation in Operation.objects.filter(idempotency_key__startswith="key ")}


@pytest.mark.case(50)
@pytest.mark.case(51)
def test_a_kill_at_any_boundary_of_a_call_moves_money_at_most_once(site: Site, name: str, nth: Arguments) -> None:
    site.woken = False
    # Otherwise some of the calls would store them as well, and have other boundaries than the next ones.
    known = {"first_contact_at": timezone.now(), **projection.key_values("default")}
    AccountState.objects.update_or_create(account="default", defaults=known)
    killed: list[str] = []
    for n in range(1, TOO_MANY):
        end = site.run("call", die_at=n, function=name, arguments=nth(n))
        if not end.killed:
            break
        killed.append(end.killed)
    assert {"COMMIT", *(where for where in killed if where.startswith("POST"))} < set(killed)
    assert len(killed) >= 9
    # What was not recorded was not sent; what was recorded is sent once, by the next process.
    assert set(made(site, name)) <= recorded() < {1_000 + n for n in range(1, len(killed) + 2)}
    before = set(made(site, name))
    assert before < recorded(), "some died before sending"
    # What is closed is mirrored: both are one commit.
    closed = Operation.objects.filter(idempotency_key__startswith="key ", state="done")
    assert 0 < closed.count() < len(before)
    for operation in closed:
        assert MIRRORS[operation.result_kind]._default_manager.filter(pk=operation.result_id).exists()
    site.woken = True
    site.recover()
    assert made(site, name) == Counter(recorded())
    # The caller repeats the call with the same key.
    again = site.run("calls", function=name, several=[nth(n) for n in range(1, len(killed) + 2)]).result
    assert len(set(again)) == len(killed) + 1
    assert made(site, name) == Counter(1_000 + n for n in range(1, len(killed) + 2))
    assert sent_keys(site, name) >= {f"key {n}" for n in range(1, len(killed) + 2)}
    site.deliver()
    site.recover()
    assert_all_in_order(site.sandbox)


@pytest.mark.case(50)
@pytest.mark.case(51)
def test_a_kill_at_any_boundary_of_a_deferred_call_moves_money_at_most_once(site: Site) -> None:
    """The shop's own work, the operation and the payout stand or fall together."""
    site.woken = False
    killed: list[str] = []
    for n in range(1, TOO_MANY):
        arguments = {**PAYOUT, "amount": 1_000 + n, "idempotency_key": f"key {n}"}
        end = site.run("approve", die_at=n, order=str(1_000 + n), function="create_payout", arguments=arguments)
        if not end.killed:
            break
        killed.append(end.killed)
    assert len(killed) > 12
    site.woken = True
    approved = {
        int(order) for order in ReceiverCall.objects.filter(what="approved").values_list("object_id", flat=True)
    }
    assert approved == recorded()
    assert set(made(site, "create_payout")) < approved
    assert approved < {1_000 + n for n in range(1, len(killed) + 2)}
    site.recover()
    assert made(site, "create_payout") == Counter(approved)
    site.deliver()
    site.recover()
    assert_all_in_order(site.sandbox)


@pytest.mark.case(50)
@pytest.mark.case(51)
def test_a_kill_at_any_boundary_of_an_approval_moves_money_at_most_once(site: Site, settings: Any) -> None:
    """Approved and claimed are one commit: it waits on, or it is sent."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 1}}
    checker = User.objects.create(username="berta", is_superuser=True)
    site.woken = False
    # Read beforehand, so that each process takes the same steps.
    services.sync_balances()
    killed: list[str] = []
    for n in range(1, TOO_MANY):
        with pytest.raises(ApprovalRequired) as caught:
            services.create_payout(**PAYOUT, amount=1_000 + n, idempotency_key=f"key {n}", actor="payroll")
        end = site.run("give_approval", die_at=n, operation=caught.value.operation.pk, user=checker.pk)
        if not end.killed:
            break
        killed.append(end.killed)
    assert {"COMMIT", "GET /balances", "POST /payouts"} < set(killed)
    approved = {int(operation.amount or 0) for operation in Operation.objects.exclude(approved_at=None)}
    assert set(made(site, "create_payout")) < approved < recorded(), "some died before the commit, some after it"
    assert all(operation.approved_by for operation in Operation.objects.exclude(state="awaiting_approval"))
    site.woken = True
    site.recover()
    assert made(site, "create_payout") == Counter(approved)
    first, *others = Operation.objects.filter(state="awaiting_approval").order_by("amount")
    assert {int(operation.amount or 0) for operation in (first, *others)} == recorded() - approved
    # What waits on can still be decided either way.
    site.run("give_approval", operation=first.pk, user=checker.pk)
    for operation in others:
        services.reject(operation, checker, "no longer needed")
    assert made(site, "create_payout") == Counter({*approved, 1_001})
    assert sent_keys(site, "create_payout") == {f"key {amount - 1_000}" for amount in {*approved, 1_001}}
    site.woken = False  # many deliveries: stored first, and worked off together
    site.deliver()
    site.woken = True
    site.recover()
    assert_all_in_order(site.sandbox)


POINTS = {
    "recorded, not sent": Point("payments_integration.client.requestor:Requestor.post"),
    # The first answer of a process says what time it is.
    "sent, no answer read": Point("urllib3.connection:HTTPConnection.getresponse", nth=2),
    "answered, not saved": Point("payments_integration.client.requestor:Requestor.post", after=True),
}


@pytest.mark.case(50)
@pytest.mark.case(51)
@pytest.mark.parametrize("point", POINTS)
def test_repeated_kills_under_one_key_make_one_payout(site: Site, point: str) -> None:
    """Several deaths at the same place, then a process that lives."""
    engine = site.sandbox.engine
    arguments = {**PAYOUT, "amount": 5_000, "idempotency_key": "the key"}
    assert site.run("call", point=POINTS[point], function="create_payout", arguments=arguments).killed
    # Its claim still holds: other workers skip it, and a repeated call raises.
    site.run("sweep")
    assert site.run("call", function="create_payout", arguments=arguments).result == "unknown"
    for _ in range(2):
        site.later(2)
        assert site.run("sweep", point=POINTS[point]).killed
    operation = Operation.objects.get()
    assert (operation.state, operation.may_have_run) == ("unknown", True)
    assert len(engine.payouts) == (0 if point == "recorded, not sent" else 1)
    site.recover()
    (payout,) = engine.payouts
    assert sent_keys(site, "create_payout") == {"the key"}
    assert site.run("call", function="create_payout", arguments=arguments).result == payout
    operation.refresh_from_db()
    assert (operation.state, operation.result_id) == ("done", payout)
    site.deliver()
    site.recover()
    assert_all_in_order(site.sandbox)


@pytest.mark.case(51)
@pytest.mark.case(57)
def test_a_kill_while_the_provider_is_at_work_makes_one_object(site: Site) -> None:
    """The repetition meets the first request, which goes on without us."""
    engine = site.sandbox.engine
    engine.faults.add(Fault("slow", operation="create_payout", delay=300.0))
    arguments = {**PAYOUT, "amount": 5_000}
    point = POINTS["sent, no answer read"]
    assert site.run("call", point=point, function="create_payout", arguments=arguments).killed
    site.later(2)
    site.run("sweep")
    statuses = [entry["status"] for entry in engine.requests if entry["operation"] == "create_payout"]
    assert statuses == [409]
    assert Operation.objects.get().state == "unknown"
    engine.gateway.closing.set()  # ends the pause
    wait_until(lambda: engine.payouts, 30, "the provider to be done with the first request")
    engine.gateway.closing.clear()
    site.recover()
    assert len(engine.payouts) == 1
    assert Operation.objects.get().state == "done"
    site.deliver()
    site.recover()
    assert_all_in_order(site.sandbox)
