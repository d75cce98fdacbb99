"""Each line that a type checker must find. It reports no other."""

from typing import Any

from payments_integration import services, testing
from payments_integration.enums import PayoutStatus
from payments_integration.handlers import on_event, on_status
from payments_integration.models import Balance, Event, Payment, Payout, Refund, StatusChange


@on_status(Payment, "suceeded")  # error
def status_misspelt(payment: Payment, **kwargs: Any) -> None: ...


@on_status(Payment, "succeeded", PayoutStatus.RETURNED)  # error
def status_of_another_model(payment: Payment, **kwargs: Any) -> None: ...


@on_status(Payment, "succeeded")  # error
def another_row(refund: Refund, **kwargs: Any) -> None: ...


@on_status(Payment)  # error
def without_keyword_arguments(payment: Payment) -> None: ...


@on_status(Payment)  # error
def only_the_arguments_of_today(
    payment: Payment,
    sender: type[Payment],
    previous_status: str,
    status: str,
    event: Event | None,
    status_change: StatusChange,
    is_stale: bool,
) -> None: ...


@on_status(Payment)  # error
async def asynchronous(payment: Payment, **kwargs: Any) -> None: ...


@on_status(Payment)  # error
def event_may_be_none(payment: Payment, event: Event, **kwargs: Any) -> None: ...


@on_status("succeeded")  # error
def without_model(payment: Payment, **kwargs: Any) -> None: ...


@on_status(Balance)  # error
def model_without_status(balance: Balance, **kwargs: Any) -> None: ...


@on_event("payment.suceeded")  # error
def type_misspelt(event: Event, **kwargs: Any) -> None: ...


@on_event("payment.succeeded", "payments.*")  # error
def pattern_misspelt(event: Event, **kwargs: Any) -> None: ...


@on_event("payment.*")  # error
def another_instance(instance: Payout, **kwargs: Any) -> None: ...


@on_event("refund.*")  # error
def event_without_keyword_arguments(event: Event) -> None: ...


@on_event("refund.*")  # error
def only_the_arguments_of_an_event_of_today(
    sender: type[Refund], event: Event, instance: Refund, previous_status: str, is_stale: bool
) -> None: ...


@on_event("refund.*")  # error
async def asynchronous_too(event: Event, **kwargs: Any) -> None: ...


@on_event()  # error
def nothing_named(event: Event, **kwargs: Any) -> None: ...


def any_text(status: str) -> None:
    on_status(Payment, status)  # error


def attributes(payment: Payment, refund: Refund) -> None:
    _ = payment.state  # error
    _ = payment.amount + "1"  # error
    _ = payment.fee + 1  # error
    _ = payment.created_at.strftime(1)  # error
    _ = refund.payment.status  # error


def calls(payment: Payment) -> None:
    services.create_payment(amount="1000", currency="CLP", country="CL", method_code="cl_webpay_card")  # error
    services.create_payment(amount=1000, currency="CLP", country="CL")  # error
    services.create_refund(payment, amout=1000)  # error
    services.defer(services.create_refund, payment, amout=1000)  # error
    services.create_payments()  # error
    _ = services.create_refund(payment).payer  # error
    testing.Sandbox()  # error
