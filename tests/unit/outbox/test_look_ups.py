"""Only one candidate that nothing else explains counts as found."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
import time_machine
from django.utils import timezone

from payments_integration import services
from payments_integration.exceptions import (
    AuthenticationFailed,
    NotFound,
    OutcomeUnknown,
    PagingError,
)
from payments_integration.models import Operation, OperationState, Payment, Payout, StatusChange, WebhookEndpoint
from payments_integration.outbox import outcomes
from payments_integration.outbox.operations import base
from payments_integration.signals import dispatching
from tests.fake_provider import (
    DEPOSIT,
    DESTINATION,
    ENDPOINT,
    PAYMENT,
    PAYOUT,
    Fake,
    Lost,
    endpoint,
    make_due,
    only_operation,
    payment,
    payout,
    refund,
    refusal,
    timeout,
)


def lose(fake: Fake, call: Callable[[], Any], *, executed: bool = False) -> Operation:
    """A call without an answer, so long ago that it is only looked up."""
    fake.script = [Lost(timeout()) if executed else timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        call()
    Operation.objects.filter(pk=caught.value.operation.pk).update(
        first_sent_at=timezone.now() - timedelta(hours=23), next_attempt_at=None
    )
    return Operation.objects.get(pk=caught.value.operation.pk)


def state(operation: Operation) -> str:
    operation.refresh_from_db()
    return operation.state


@pytest.fixture
def paid(mirrored: Any) -> Payment:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    assert isinstance(row, Payment)
    return row


@pytest.mark.parametrize(
    ("call", "model"),
    [
        (lambda: services.create_payment(**PAYMENT), Payment),
        (lambda: services.create_payout(**PAYOUT), Payout),
        (lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"), Payout),
    ],
)
@pytest.mark.promise(5)
def test_a_look_up_finds_an_object_by_its_reference(fake: Fake, call: Callable[[], Any], model: Any) -> None:
    operation = lose(fake, call, executed=True)
    assert services.resume_operations() == {"done": 1}
    assert state(operation) == OperationState.DONE
    assert model.objects.get().pk == operation.result_id
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"amount": 4_999},
        {"currency": "USD"},
        {"merchant_reference": "order 8"},
        {"created_at": timezone.now() - timedelta(hours=72)},
        {"refund_id": "ref_1"},
    ],
)
def test_a_look_up_ignores_an_object_that_differs(
    fake: Fake, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"))
    fake.add(payout(**{"merchant_reference": "order 7", **other}))
    # A provider that ignores the filter must not lead us astray.
    every = iter(fake.made("payout"))
    monkeypatch.setattr(fake.payouts, "list", lambda **_: every, raising=False)
    assert services.resume_operations() == {"needs_person": 1}
    assert state(operation) == OperationState.NEEDS_PERSON


class TestPayoutsOfOneOrder:
    """A marketplace pays several sellers for one order, partly in the dashboard. None of ours was executed."""

    ORDER: ClassVar[dict[str, Any]] = {**PAYOUT, "merchant_reference": "order 7"}

    @pytest.mark.promise(5)
    @pytest.mark.parametrize(("number", "state"), [("998877665544", "needs_person"), ("•••6789", "done")])
    def test_one_to_another_account_is_not_linked(self, fake: Fake, number: str, state: str) -> None:
        lose(fake, lambda: services.create_payout(**self.ORDER))
        other = fake.add(payout(merchant_reference="order 7", destination={**DESTINATION, "account_number": number}))
        assert services.resume_operations() == {state: 1}
        assert other.id in (only_operation().result_id or only_operation().note)

    @pytest.mark.promise(5)
    def test_one_to_another_account_is_not_linked_before_a_first_send(self, fake: Fake) -> None:
        with dispatching():
            operation = services.defer(services.create_payout, **self.ORDER)
        Operation.objects.update(created_at=timezone.now() - timedelta(hours=2))
        elsewhere = {**DESTINATION, "account_number": "998877665544"}
        other = fake.add(payout(merchant_reference="order 7", destination=elsewhere))
        assert services.resume_operations() == {"needs_person": 1}
        services.mark_others(operation, [other.id], "ana", "to another seller")
        assert services.retry(operation, "ana").state == OperationState.DONE

    @pytest.mark.promise(5)
    def test_one_that_was_mirrored_before_ours_was_sent_is_not_linked(self, fake: Fake, mirrored: Any) -> None:
        mirrored(payout(merchant_reference="order 7"))
        operation = lose(fake, lambda: services.create_payout(**self.ORDER))
        assert operation.first_sent_at is not None
        StatusChange.objects.update(recorded_at=operation.first_sent_at - timedelta(minutes=1))
        assert services.resume_operations() == {"needs_person": 1}
        assert only_operation().note.endswith("fits it, but may have been made before it was sent")


@pytest.mark.parametrize("mark", [{"flow": "deposit_reference"}, {"method_family": "deposit_reference"}])
def test_a_look_up_ignores_a_transfer_to_a_deposit_reference(fake: Fake, mark: dict[str, str]) -> None:
    lose(fake, lambda: services.create_payment(**PAYMENT, merchant_reference="ana"))
    fake.add(payment(merchant_reference="ana", **mark))
    assert services.resume_operations() == {"needs_person": 1}


def test_a_look_up_allows_for_a_provider_clock_that_is_behind(fake: Fake) -> None:
    operation = lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"))
    assert operation.first_sent_at is not None
    made = fake.add(payout(merchant_reference="order 7", created_at=operation.first_sent_at - timedelta(minutes=4)))
    assert services.resume_operations() == {"done": 1}
    assert state(operation) == OperationState.DONE
    assert operation.result_id == made.id


@pytest.mark.case(100)
@pytest.mark.promise(5)
@pytest.mark.parametrize("minutes", [6, 10, 60, 180, -6, -180])
@pytest.mark.parametrize("call", ["payment", "payout", "refund"])
def test_a_look_up_allows_for_a_clock_of_ours_that_was_wrong(
    fake: Fake, paid: Payment, call: str, minutes: int
) -> None:
    """It was wrong while the request was sent, and is right again."""
    calls: dict[str, Callable[[], Any]] = {
        "payment": lambda: services.create_payment(**PAYMENT),
        "payout": lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"),
        "refund": lambda: services.create_refund(paid, amount=1_000),
    }
    now = timezone.now()
    with time_machine.travel(now + timedelta(minutes=minutes), tick=False) as clock:
        fake.ahead = -timedelta(minutes=minutes)
        fake.script = [Lost(timeout())]
        with pytest.raises(OutcomeUnknown) as caught:
            calls[call]()
        [made] = [item for item in fake.made(call) if item.id != paid.pk]
        made.created_at = fake.now()
        fake.ahead = timedelta()
        clock.move_to(now + timedelta(hours=25))
        make_due()
        assert services.resume_operations() == {"done": 1}
    operation = caught.value.operation
    assert state(operation) == OperationState.DONE
    assert operation.result_id == made.id


@pytest.mark.case(62)
@pytest.mark.promise(5)
@pytest.mark.parametrize("has_dates", [True, False])
def test_a_person_decides_about_a_refund_that_may_be_older(fake: Fake, paid: Payment, has_dates: bool) -> None:
    """Refunds have no reference: one like it may have been made in the provider's dashboard before."""
    fake.has_dates = has_dates
    operation = lose(fake, lambda: services.create_refund(paid, amount=1_000))
    older = fake.add(
        refund(payment_id=paid.pk, amount=1_000, created_at=timezone.now() - timedelta(hours=3 if has_dates else 0))
    )
    assert services.resume_operations() == {"needs_person": 1}
    assert state(operation) == OperationState.NEEDS_PERSON
    assert f"{older.id} fits it, but may have been made before it was sent" in operation.note


@pytest.mark.case(62)
def test_a_person_decides_between_two_objects_that_fit(fake: Fake) -> None:
    operation = lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"))
    first, second = (fake.add(payout(merchant_reference="order 7")) for _ in range(2))
    assert services.resume_operations() == {"needs_person": 1}
    operation.refresh_from_db()
    assert first.id in operation.note
    assert second.id in operation.note


@pytest.mark.case(62)
@pytest.mark.promise(5)
def test_a_look_up_ignores_an_object_of_another_operation(fake: Fake) -> None:
    services.create_payout(**PAYOUT, merchant_reference="order 7")
    operation = lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"))
    assert services.resume_operations() == {"needs_person": 1}
    assert state(operation) == OperationState.NEEDS_PERSON
    assert len(fake.made("payout")) == 1


@pytest.mark.case(62)
def test_a_look_up_finds_the_object_that_no_other_operation_made(fake: Fake) -> None:
    first = services.create_payout(**PAYOUT, merchant_reference="order 7")
    operation = lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"), executed=True)
    assert services.resume_operations() == {"done": 1}
    operation.refresh_from_db()
    assert operation.result_id not in ("", first.pk)


@pytest.mark.case(62)
@pytest.mark.promise(5)
def test_a_person_decides_about_two_equal_refunds_of_open_outcome(fake: Fake, paid: Payment) -> None:
    """One of the two was executed, and it is unknown which."""
    first = lose(fake, lambda: services.create_refund(paid, amount=1_000), executed=True)
    second = lose(fake, lambda: services.create_refund(paid, amount=1_000))
    assert services.resume_operations() == {"needs_person": 2}
    assert {state(first), state(second)} == {OperationState.NEEDS_PERSON}


def test_a_refund_is_found_by_its_payment_and_amount(fake: Fake, paid: Payment) -> None:
    fake.add(refund(payment_id=paid.pk, amount=999))
    fake.add(refund(payment_id="pay_other", amount=1_000))
    operation = lose(fake, lambda: services.create_refund(paid, amount=1_000), executed=True)
    assert services.resume_operations() == {"done": 1}
    operation.refresh_from_db()
    assert fake.objects[operation.result_id].amount == 1_000
    assert fake.objects[operation.result_id].payment_id == paid.pk


def test_a_look_up_ignores_refunds_of_other_payments(
    fake: Fake, paid: Payment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(fake, lambda: services.create_refund(paid, amount=1_000))
    other = refund(payment_id="pay_other", amount=1_000)
    # A provider that ignores the filter must not lead us astray.
    monkeypatch.setattr(fake.refunds, "list", lambda **_: iter([other]), raising=False)
    assert services.resume_operations() == {"needs_person": 1}
    assert only_operation().result_id == ""


def test_a_full_refund_is_found_by_its_recorded_amount(fake: Fake, paid: Payment) -> None:
    operation = lose(fake, lambda: services.create_refund(paid), executed=True)
    assert operation.amount == 10_000
    assert services.resume_operations() == {"done": 1}


@pytest.mark.parametrize(
    ("status", "outcome"), [("canceled", "done"), ("created", "needs_person"), ("succeeded", "needs_person")]
)
def test_a_cancel_is_looked_up_by_reading_its_object(fake: Fake, mirrored: Any, status: str, outcome: str) -> None:
    row = mirrored(payment())
    operation = lose(fake, lambda: services.cancel_payment(row))
    fake.objects[row.pk].status = status
    assert services.resume_operations() == {outcome: 1}
    row.refresh_from_db()
    assert row.status == status
    assert operation.result_id in ("", row.pk)
    assert len(fake.calls) == 1


def test_a_person_decides_about_a_cancel_of_an_object_that_is_gone(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payout())
    lose(fake, lambda: services.cancel_payout(row))
    fake.objects.clear()
    assert services.resume_operations() == {"needs_person": 1}


def test_deposit_references_cannot_be_looked_up(fake: Fake) -> None:
    lose(fake, lambda: services.create_deposit_reference(**DEPOSIT), executed=True)
    assert services.resume_operations() == {"needs_person": 1}


@pytest.mark.case(63)
def test_an_endpoint_is_found_by_its_url_and_rotated(fake: Fake) -> None:
    fake.add(endpoint(url="https://other.example/"))
    fake.add(endpoint(events=["payout.failed"]))
    operation = lose(fake, lambda: services.create_webhook_endpoint(**ENDPOINT), executed=True)
    assert services.resume_operations() == {"done": 1}
    assert services.resume_operations() == {"done": 1}, "the rotation"
    operation.refresh_from_db()
    row = WebhookEndpoint.objects.get(pk=operation.result_id)
    assert row.secret_token
    assert [call.name for call in fake.calls] == ["create_webhook_endpoint", "rotate"]


@pytest.mark.case(63)
def test_a_lost_rotation_is_rotated_again(fake: Fake, mirrored: Any) -> None:
    row = mirrored(endpoint())
    operation = lose(fake, lambda: services.rotate_webhook_secret(row), executed=True)
    assert services.resume_operations() == {"done": 1}
    assert services.resume_operations() == {"done": 1}
    assert state(operation) == OperationState.DONE
    assert len({call.key for call in fake.calls}) == 2
    row.refresh_from_db()
    assert row.secret_token


@pytest.mark.parametrize("executed", [True, False])
def test_a_deletion_may_be_repeated_at_any_age(fake: Fake, mirrored: Any, executed: bool) -> None:
    row = mirrored(endpoint())
    lose(fake, lambda: services.delete_webhook_endpoint(row), executed=executed)
    assert services.resume_operations() == {"done": 1}
    assert len(fake.calls) == 2
    row.refresh_from_db()
    assert row.deleted_at is not None


@pytest.mark.parametrize("executed", [True, False])
def test_a_deletion_under_another_key_is_looked_up(fake: Fake, mirrored: Any, executed: bool) -> None:
    row = mirrored(endpoint())
    lose(fake, lambda: services.delete_webhook_endpoint(row), executed=executed)
    Operation.objects.update(sent_to="elsewhere")
    assert services.resume_operations() == ({"done": 1} if executed else {"needs_person": 1})
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    "error",
    [timeout(), refusal(AuthenticationFailed, 401, "api_key_revoked"), PagingError("a page ends early")],
)
def test_an_operation_stays_unknown_if_its_look_up_fails(fake: Fake, error: Exception, attention: list[str]) -> None:
    operation = lose(fake, lambda: services.create_payout(**PAYOUT), executed=True)
    fake.read_script = [error]
    assert services.resume_operations() == {"unknown": 1}
    assert state(operation) == OperationState.UNKNOWN
    assert operation.next_attempt_at is not None
    make_due()
    Operation.objects.update(first_sent_at=timezone.now() - timedelta(hours=49))
    fake.read_script = [error]
    assert services.resume_operations() == {"needs_person": 1}
    assert attention == ["operation_needs_resolution"]


def test_a_look_up_reads_a_limited_number_of_objects(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_SCANNED", 3)
    operation = lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"), executed=True)
    for _ in range(3):
        fake.add(payout(merchant_reference="order 7", amount=1))
    assert services.resume_operations() == {"needs_person": 1}
    assert state(operation) == OperationState.NEEDS_PERSON


def test_a_look_up_stops_at_older_objects(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_SCANNED", 3)
    lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"), executed=True)
    for _ in range(9):
        fake.add(payout(merchant_reference="order 7", created_at=timezone.now() - timedelta(days=4)))
    assert services.resume_operations() == {"done": 1}


def test_of_two_look_ups_that_find_one_object_one_links_it(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one committed after we had looked for links, and before ours."""
    first = services.create_payout(**PAYOUT, merchant_reference="order 7")
    operation = lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"))
    taken = Operation.objects.get(result_id=first.pk)
    Operation.objects.filter(pk=taken.pk).update(result_id="")
    linked = outcomes.link

    def late(*args: Any, **kwargs: Any) -> bool:
        Operation.objects.filter(pk=taken.pk).update(result_id=first.pk)
        return linked(*args, **kwargs)

    monkeypatch.setattr(outcomes, "link", late)
    assert services.resume_operations() == {"needs_person": 1}
    assert state(operation) == OperationState.NEEDS_PERSON
    assert operation.result_id == ""


def test_a_person_decides_about_an_object_of_another_account(fake: Fake, mirrored: Any) -> None:
    operation = lose(fake, lambda: services.create_payout(**PAYOUT, merchant_reference="order 7"), executed=True)
    mirrored(fake.made("payout")[0], account="second")
    assert services.resume_operations() == {"needs_person": 1}
    assert state(operation) == OperationState.NEEDS_PERSON


def test_a_found_object_is_mirrored_as_it_is_now(fake: Fake) -> None:
    lose(fake, lambda: services.create_payout(**PAYOUT), executed=True)
    fake.made("payout")[0].status = "succeeded"
    services.resume_operations()
    assert Payout.objects.get().status == "succeeded"
    assert "found" in only_operation().note


def test_an_object_that_is_not_found_is_no_refusal(fake: Fake) -> None:
    """A 404 while reading says nothing about the operation."""
    operation = lose(fake, lambda: services.create_payout(**PAYOUT), executed=True)
    fake.read_script = [NotFound("no", status_code=404, code="resource_not_found")]
    assert services.resume_operations() == {"unknown": 1}
    assert state(operation) == OperationState.UNKNOWN
