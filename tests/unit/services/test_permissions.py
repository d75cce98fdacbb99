"""A member of staff does what their permissions say, whichever way they come. Before anything is asked or recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from payments_integration import inbox, permissions, services
from payments_integration.models import Event, EventState, Operation, OperationState
from payments_integration.outbox.resolution import MAY_STILL_RUN
from tests import factories
from tests.fake_provider import (
    DEPOSIT,
    ENDPOINT,
    PAYMENT,
    PAYOUT,
    Fake,
    Lost,
    endpoint,
    only_operation,
    payment,
    payout,
    timeout,
)


@pytest.fixture
def rows(mirrored: Any) -> dict[str, Any]:
    return {
        "payment": mirrored(payment(status="succeeded", amount_received=10_000)),
        "open": mirrored(payment()),
        "payout": mirrored(payout()),
        "endpoint": mirrored(endpoint()),
    }


@pytest.fixture
def ana(db: None) -> User:
    return User.objects.create(username="ana", is_staff=True)


def allow(user: User, *codenames: str) -> User:
    """The user with these permissions; Django remembers them on the instance."""
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return User.objects.get(pk=user.pk)


#: Each call that changes something, its arguments, and the permission it needs.
CALLS: dict[str, tuple[Callable[..., Any], Callable[[dict[str, Any]], tuple[list[Any], dict[str, Any]]], str]] = {
    "create_refund": (services.create_refund, lambda rows: ([rows["payment"]], {"amount": 1}), "refund_payment"),
    "cancel_payment": (services.cancel_payment, lambda rows: ([rows["open"]], {}), "cancel_payment"),
    "create_payout": (services.create_payout, lambda rows: ([], PAYOUT), "create_payout"),
    "cancel_payout": (services.cancel_payout, lambda rows: ([rows["payout"]], {}), "cancel_payout"),
    "create_webhook_endpoint": (
        services.create_webhook_endpoint, lambda rows: ([], ENDPOINT), "manage_webhookendpoint",
    ),
    "delete_webhook_endpoint": (
        services.delete_webhook_endpoint, lambda rows: ([rows["endpoint"]], {}), "manage_webhookendpoint",
    ),
    "rotate_webhook_secret": (
        services.rotate_webhook_secret, lambda rows: ([rows["endpoint"]], {}), "rotate_webhookendpoint",
    ),
}  # fmt: skip
ALL = {"approve_operation", "change_operation", "close_operation", *(codename for _, _, codename in CALLS.values())}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.case(88)
def test_each_call_needs_its_permission_and_no_other(
    fake: Fake, rows: dict[str, Any], ana: User, name: str, deferred: bool
) -> None:
    function, arguments, codename = CALLS[name]
    args, kwargs = arguments(rows)
    if deferred:
        args, function = [function, *args], services.defer
    for codenames in ((), ALL - {codename}):
        fake.reads.clear()
        with pytest.raises(PermissionDenied, match=codename):
            function(*args, **kwargs, actor=allow(ana, *codenames))
        assert not Operation.objects.exists()
        assert (fake.calls, fake.reads) == ([], [])
    function(*args, **kwargs, actor=allow(ana, codename))
    assert len(fake.calls) == 1
    assert only_operation().actor_id == str(ana.pk)


def test_the_permission_is_checked_before_the_arguments(fake: Fake, ana: User) -> None:
    with pytest.raises(PermissionDenied):
        services.create_payout(**{**PAYOUT, "amount": "much"}, actor=ana)
    with pytest.raises(PermissionDenied):
        services.create_refund("pay_unknown", actor=ana)
    with pytest.raises(PermissionDenied):
        services.cancel_payment(payment="pay_unknown", actor=ana)  # type: ignore[call-arg]


@pytest.mark.parametrize("actor", [None, "job", AnonymousUser(), User(pk=7, username="customer")])
def test_an_actor_who_is_not_staff_needs_no_permission(fake: Fake, actor: Any) -> None:
    assert services.create_payout(**PAYOUT, actor=actor)


def test_taking_payments_needs_no_permission(fake: Fake, ana: User) -> None:
    assert services.create_payment(**PAYMENT, actor=ana)
    assert services.create_deposit_reference(**DEPOSIT, actor=ana)


def test_an_inactive_superuser_may_do_nothing(fake: Fake, db: None) -> None:
    boss = User.objects.create(username="boss", is_staff=True, is_superuser=True)
    assert services.create_payout(**PAYOUT, actor=boss)
    boss.is_active = False
    with pytest.raises(PermissionDenied):
        services.create_payout(**PAYOUT, actor=boss)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_permission_for_one_row_allows_that_row_only(
    fake: Fake, rows: dict[str, Any], ana: User, mirrored: Any, settings: Any, by_id: bool
) -> None:
    settings.AUTHENTICATION_BACKENDS = ["tests.unit.admin.backends.OnePaymentBackend"]
    mine = mirrored(payment(id="pay_mine", status="succeeded", amount_received=10_000))
    with pytest.raises(PermissionDenied):
        services.create_refund(rows["payment"].pk if by_id else rows["payment"], amount=1, actor=ana)
    assert services.create_refund(mine.pk if by_id else mine, amount=1, actor=ana)


class TestOperations:
    @pytest.fixture
    def stuck(self, fake: Fake) -> Operation:
        fake.script = [Lost(timeout())]
        operation = services.defer(services.create_payout, **PAYOUT)
        sent = timezone.now() - MAY_STILL_RUN
        Operation.objects.update(state=OperationState.NEEDS_PERSON, claimed_until=None, last_sent_at=sent)
        fake.calls.clear()
        return operation

    @pytest.mark.parametrize(
        ("decide", "codename"),
        [
            (lambda op, user, made: services.look_up(op, actor=user), "change_operation"),
            (lambda op, user, made: services.retry(op, actor=user), "change_operation"),
            (lambda op, user, made: services.mark_happened(op, made, user, "seen"), "change_operation"),
            (lambda op, user, made: services.mark_never_happened(op, user, "not there"), "close_operation"),
        ],
        ids=["look_up", "retry", "mark_happened", "mark_never_happened"],
    )
    @pytest.mark.case(88)
    def test_each_resolution_needs_its_permission(
        self, fake: Fake, stuck: Operation, ana: User, decide: Any, codename: str
    ) -> None:
        made = fake.made("payout")[0].id
        fake.reads.clear()
        with pytest.raises(PermissionDenied, match=codename):
            decide(stuck, allow(ana, *(ALL - {codename})), made)
        assert (fake.calls, fake.reads) == ([], [])
        assert only_operation().state == OperationState.NEEDS_PERSON
        if codename == "close_operation":
            fake.objects.clear()  # otherwise it happened
        operation = decide(stuck, allow(ana, codename), made)
        assert operation.state in (OperationState.DONE, OperationState.CLOSED)
        assert f"{ana.pk}:ana" in operation.note

    def test_the_name_of_a_job_is_noted(self, stuck: Operation) -> None:
        assert "nightly has it looked up" in services.look_up(stuck, "nightly").note

    def test_a_look_up_without_an_actor_notes_no_name(self, stuck: Operation) -> None:
        assert "has it looked up" not in services.look_up(stuck).note


@pytest.mark.case(88)
def test_replaying_needs_its_permission(ana: User, woken: list[str]) -> None:
    inbox.receive_many("default", [factories.body(factories.life()[0])], source="webhook")
    Event.objects.update(state=EventState.PARKED)
    event = Event.objects.get()
    with pytest.raises(PermissionDenied, match="replay_event"):
        inbox.replay(event, ana)
    assert Event.objects.get().state == EventState.PARKED
    inbox.replay(event, allow(ana, "replay_event"))
    assert Event.objects.get().state == EventState.APPLIED


def test_a_staff_object_without_permissions_may_do_nothing() -> None:
    class Stranger:
        is_staff = True

    assert not permissions.may(Stranger(), "create_payout")
    with pytest.raises(PermissionDenied):
        permissions.require_of_staff(Stranger(), "create_payout")
