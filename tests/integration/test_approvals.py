"""Several decide at once about what waits for a second person: one decision counts, and money moves once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from payments_integration import services
from payments_integration.exceptions import ApprovalRequired
from payments_integration.models import Operation, OperationState, Payment, Payout, Refund
from payments_integration.outbox.operations.payouts import BalanceCovers
from payments_integration.testing import ProviderSandbox
from tests.databases import LEVELS, Once, at_once

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.promise(5),
    pytest.mark.parametrize("level", LEVELS),
]

DESTINATION = {
    "type": "bank_account",
    "account_number": "00123456789",
    "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "12.345.678-5"},
}
PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_khipu"}
PAYOUT: dict[str, Any] = {
    "amount": 5_000,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_transfer",
    "destination": DESTINATION,
}


@pytest.fixture
def provider(sandbox: ProviderSandbox, settings: Any) -> ProviderSandbox:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 4_000}}
    sandbox.engine.fund("CLP", 1_000_000)
    return sandbox


@pytest.fixture
def people() -> list[User]:
    """Who may approve anything, also what they asked for: the service decides."""
    return [User.objects.create(username=f"boss {n}", is_staff=True, is_superuser=True) for n in range(6)]


@dataclass(frozen=True)
class Refused:
    """A call that was refused. No exception, so that ``at_once`` returns it."""

    error: ValidationError | ApprovalRequired


def returning_refusal(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, which returns its refusal instead of raising it."""

    def work() -> Any:
        try:
            return call()
        except (ValidationError, ApprovalRequired) as error:
            return Refused(error)

    return work


def ask(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Operation:
    with pytest.raises(ApprovalRequired) as caught:
        function(*args, **kwargs, destination=DESTINATION)
    assert isinstance(caught.value.operation, Operation)
    return caught.value.operation


def payout_of(maker: User) -> Operation:
    given = {name: value for name, value in PAYOUT.items() if name != "destination"}
    return ask(services.create_payout, **given, actor=maker)


def paid(provider: ProviderSandbox) -> Payment:
    row = services.create_payment(**PAYMENT)
    provider.engine.pay(row.pk)
    return services.refresh(row)


@pytest.mark.case(83)
def test_of_concurrent_approvals_one_sends(provider: ProviderSandbox, people: list[User], level: str) -> None:
    operation = payout_of(people[0])
    results = at_once(
        *[returning_refusal(lambda user=user: services.approve(operation.pk, user)) for user in people[1:]],
        level=level,
    )
    (row,) = [result for result in results if isinstance(result, Payout)]
    others = [result for result in results if result is not row]
    assert all("has approved it already" in other.error.message_dict["operation"][0] for other in others)
    assert list(provider.engine.payouts) == [row.pk]
    operation.refresh_from_db()
    assert (operation.state, operation.attempts) == (OperationState.DONE, 1)


@pytest.mark.case(83)
def test_of_two_approvals_that_read_the_same_state_one_sends(
    provider: ProviderSandbox, people: list[User], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one approves while the first is between its first look and its transaction."""
    operation = payout_of(people[0])
    late: list[Any] = []

    def meanwhile() -> None:
        late.append(services.approve(operation.pk, people[2]))

    refresh = Once(BalanceCovers.refresh, meanwhile)
    monkeypatch.setattr(BalanceCovers, "refresh", lambda guard: refresh(guard))  # noqa: PLW0108  (binds)
    (result,) = at_once(returning_refusal(lambda: services.approve(operation.pk, people[1])), level=level)
    assert isinstance(result, Refused)
    assert [row.pk for row in late] == list(provider.engine.payouts)


@pytest.mark.case(83)
def test_an_approval_and_rejections_at_once_have_one_result(
    provider: ProviderSandbox, people: list[User], level: str
) -> None:
    operation = payout_of(people[0])
    results = at_once(
        returning_refusal(lambda: services.approve(operation.pk, people[1])),
        returning_refusal(lambda: services.reject(operation.pk, people[2], "no")),
        returning_refusal(lambda: services.reject(operation.pk, people[0], "a mistake")),
        level=level,
    )
    assert sum(isinstance(result, Refused) for result in results) == 2, results
    operation.refresh_from_db()
    sent = isinstance(results[0], Payout)
    assert operation.state == (OperationState.DONE if sent else OperationState.CLOSED)
    assert len(provider.engine.payouts) == sent


@pytest.mark.case(83)
def test_a_double_click_makes_one_request_for_approval(
    provider: ProviderSandbox, people: list[User], level: str
) -> None:
    call = returning_refusal(lambda: services.create_payout(**PAYOUT, idempotency_key="k1", actor=people[0]))
    results = at_once(*[call] * 6, level=level)
    assert {result.error.operation.pk for result in results} == {Operation.objects.get().pk}
    assert provider.engine.payouts == {}


@pytest.mark.case(82)
def test_concurrent_approvals_and_requests_do_not_exceed_the_payment(
    provider: ProviderSandbox, people: list[User], level: str
) -> None:
    """What waits, what is approved now and what is asked for below the limit share one rest."""
    payment = paid(provider)
    waiting = [ask(services.create_refund, payment.pk, amount=4_000, actor=people[0]) for _ in range(2)]
    works = [lambda op=op, user=user: services.approve(op.pk, user) for op in waiting for user in people[1:3]]
    works += [lambda: services.create_refund(payment.pk, amount=1_500, destination=DESTINATION)] * 2
    results = at_once(*map(returning_refusal, works), level=level)
    made = sorted(refund["amount"] for refund in provider.engine.refunds.values())
    assert made == [1_500, 4_000, 4_000], results
    assert sum(isinstance(result, Refund) for result in results) == 3
    assert sum(isinstance(result, Refused) for result in results) == 3
