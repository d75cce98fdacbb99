"""The 21 operations of the interface: each takes a project and a request and gives a status and an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from .catalog import METHODS, MIN_AMOUNT
from .collection import DEFAULT_LIMIT, MAX_LIMIT, Collection
from .errors import ApiError
from .project import Project
from .shapes import COUNTRIES, CURRENCIES, EVENT_TYPES, PAYMENT_STATUSES, PAYOUT_STATUSES, Wire, parse_iso

Result: TypeAlias = tuple[int, Wire]


@dataclass
class Call:
    """One request to an operation: the id in its path, its query parameters and its JSON body."""

    object_id: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Wire = field(default_factory=dict)

    def only(self, *names: str) -> None:
        """Refuse query parameters with other names."""
        for name in self.query:
            if name not in names:
                raise ApiError("parameter_invalid", "This parameter is not known.", param=name)

    def option(self, name: str, options: tuple[str, ...]) -> str | None:
        """A query parameter out of a fixed set."""
        value = self.query.get(name)
        if value is not None and value not in options:
            raise ApiError("parameter_invalid", f"This must be one of {', '.join(options)}.", param=name)
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """A query parameter that is an integer within bounds."""
        value = self.query.get(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or len(value) > 19 or not low <= int(value) <= high:
            raise ApiError("parameter_invalid", f"This must be an integer from {low} to {high}.", param=name)
        return int(value)

    def moment(self, name: str) -> datetime | None:
        """A query parameter that is a date-time with a time zone."""
        value = self.query.get(name)
        if value is None:
            return None
        try:
            if "T" not in value.upper():
                raise ValueError("a date alone is not a date-time")
            return parse_iso(value)
        except ValueError as error:
            raise ApiError(
                "parameter_invalid", "This must be an ISO 8601 date-time with a time zone.", param=name
            ) from error

    def page(self, items: Collection, *wanted: Callable[[Wire], bool]) -> Result:
        """The page of a list that ``limit`` and ``starting_after`` ask for."""
        limit = self.integer("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT
        starting_after = self.query.get("starting_after")
        return 200, items.page(limit, starting_after, lambda item: all(test(item) for test in wanted))

    def equal(self, field_name: str, value: str | None) -> Callable[[Wire], bool]:
        """A filter: the field has this value, if one was given."""
        return lambda item: value is None or item.get(field_name) == value

    def created_between(self) -> Callable[[Wire], bool]:
        """The filter of ``created_from`` and ``created_to``, both inclusive."""
        first, last = self.moment("created_from"), self.moment("created_to")
        if first is None and last is None:
            return lambda item: True

        def wanted(item: Wire) -> bool:
            at = parse_iso(item["created_at"])
            return (first is None or at >= first) and (last is None or at <= last)

        return wanted


@dataclass(frozen=True)
class Operation:
    """One operation. ``bodiless``: a POST that carries no body."""

    name: str
    run: Callable[[Project, Call], Result]
    bodiless: bool = False


OPERATIONS: Final[dict[str, Operation]] = {}


def _operation(
    *, bodiless: bool = False
) -> Callable[[Callable[[Project, Call], Result]], Callable[[Project, Call], Result]]:
    def register(run: Callable[[Project, Call], Result]) -> Callable[[Project, Call], Result]:
        OPERATIONS[run.__name__] = Operation(run.__name__, run, bodiless)
        return run

    return register


@_operation()
def list_payment_methods(project: Project, call: Call) -> Result:
    """GET /payment-methods: those of the merchant's agreement that fit the country, currency and amount given."""
    call.only("country", "currency", "amount")
    country, currency = call.option("country", COUNTRIES), call.option("currency", CURRENCIES)
    amount = call.integer("amount", MIN_AMOUNT, 2**63 - 1)
    terms = project.terms
    return 200, {
        "data": [
            method.wire(available=method.code not in terms.unavailable_methods)
            for method in METHODS.values()
            if country in (None, method.country)
            and currency in (None, method.currency)
            and (amount is None or amount <= method.max_amount)
            and method.country in terms.countries
            and method.code not in terms.forbidden_methods
        ]
    }


@_operation()
def list_payments(project: Project, call: Call) -> Result:
    """GET /payments"""
    call.only("limit", "starting_after", "status", "merchant_reference", "created_from", "created_to")
    return call.page(
        project.pay_ins.items,
        call.equal("status", call.option("status", PAYMENT_STATUSES)),
        call.equal("merchant_reference", call.query.get("merchant_reference")),
        call.created_between(),
    )


@_operation()
def create_payment(project: Project, call: Call) -> Result:
    """POST /payments"""
    return 201, project.pay_ins.create(call.body)


@_operation()
def get_payment(project: Project, call: Call) -> Result:
    """GET /payments/{payment_id}"""
    return 200, project.pay_ins.items.fetch(call.object_id)


@_operation(bodiless=True)
def cancel_payment(project: Project, call: Call) -> Result:
    """POST /payments/{payment_id}/cancel"""
    return 200, project.pay_ins.cancel(call.object_id)


@_operation()
def list_payouts(project: Project, call: Call) -> Result:
    """GET /payouts"""
    call.only("limit", "starting_after", "status", "merchant_reference")
    return call.page(
        project.pay_outs.items,
        call.equal("status", call.option("status", PAYOUT_STATUSES)),
        call.equal("merchant_reference", call.query.get("merchant_reference")),
    )


@_operation()
def create_payout(project: Project, call: Call) -> Result:
    """POST /payouts"""
    return 201, project.pay_outs.create(call.body)


@_operation()
def get_payout(project: Project, call: Call) -> Result:
    """GET /payouts/{payout_id}"""
    return 200, project.pay_outs.items.fetch(call.object_id)


@_operation(bodiless=True)
def cancel_payout(project: Project, call: Call) -> Result:
    """POST /payouts/{payout_id}/cancel"""
    return 200, project.pay_outs.cancel(call.object_id)


@_operation()
def list_refunds(project: Project, call: Call) -> Result:
    """GET /refunds"""
    call.only("limit", "starting_after", "payment_id")
    return call.page(project.pay_backs.items, call.equal("payment_id", call.query.get("payment_id")))


@_operation()
def create_refund(project: Project, call: Call) -> Result:
    """POST /refunds"""
    return 201, project.pay_backs.create(call.body)


@_operation()
def get_refund(project: Project, call: Call) -> Result:
    """GET /refunds/{refund_id}"""
    return 200, project.pay_backs.items.fetch(call.object_id)


@_operation()
def create_deposit_reference(project: Project, call: Call) -> Result:
    """POST /deposit-references"""
    return 201, project.deposit_accounts.create(call.body)


@_operation()
def get_deposit_reference(project: Project, call: Call) -> Result:
    """GET /deposit-references/{deposit_reference_id}"""
    return 200, project.deposit_accounts.items.fetch(call.object_id)


@_operation()
def list_balances(project: Project, call: Call) -> Result:
    """GET /balances"""
    call.only()
    return 200, {"data": list(project.ledger.balances.values())}


@_operation()
def list_webhook_endpoints(project: Project, call: Call) -> Result:
    """GET /webhook-endpoints"""
    call.only()
    return 200, {"data": [endpoint.wire() for endpoint in project.webhooks.by_id.values()]}


@_operation()
def create_webhook_endpoint(project: Project, call: Call) -> Result:
    """POST /webhook-endpoints"""
    return 201, project.webhooks.create(call.body)


@_operation()
def delete_webhook_endpoint(project: Project, call: Call) -> Result:
    """DELETE /webhook-endpoints/{endpoint_id}"""
    return 200, project.webhooks.delete(call.object_id)


@_operation(bodiless=True)
def rotate_webhook_secret(project: Project, call: Call) -> Result:
    """POST /webhook-endpoints/{endpoint_id}/rotate-secret"""
    return 200, project.webhooks.rotate(call.object_id)


@_operation()
def list_events(project: Project, call: Call) -> Result:
    """GET /events"""
    call.only("limit", "starting_after", "type", "created_from", "created_to")
    return call.page(
        project.event_store.items,
        call.equal("type", call.option("type", EVENT_TYPES)),
        call.created_between(),
    )


@_operation()
def get_event(project: Project, call: Call) -> Result:
    """GET /events/{event_id}"""
    return 200, project.event_store.items.fetch(call.object_id)
