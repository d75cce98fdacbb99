"""Run the 21 operations of the API. Each takes a project and a call, and returns an HTTP status and an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from .catalog import METHODS, MIN_AMOUNT
from .clock import parse_iso
from .project import ProjectState
from .protocol import COUNTRIES, CURRENCIES, EVENT_TYPES, INT64_MAX, PAYMENT_STATUSES, PAYOUT_STATUSES, ApiError, Json
from .resources import DEFAULT_LIMIT, MAX_LIMIT, Collection

Result: TypeAlias = tuple[int, Json]


@dataclass
class Call:
    """One call of an operation: the id in the path, the query parameters and the JSON body."""

    object_id: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json = field(default_factory=dict)

    def only(self, *names: str) -> None:
        """Raise parameter_invalid for query parameters with other names."""
        for name in self.query:
            if name not in names:
                allowed = f"Use {', '.join(names)}." if names else "This request takes none."
                raise ApiError("parameter_invalid", f"This parameter is not known. {allowed}", param=name)

    def option(self, name: str, options: tuple[str, ...]) -> str | None:
        """Return a query parameter with a fixed set of values; None if it is absent."""
        value = self.query.get(name)
        if value is not None and value not in options:
            raise ApiError("parameter_invalid", f"This must be one of {', '.join(options)}.", param=name)
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Return a query parameter that is an integer from ``low`` to ``high``; None if it is absent."""
        value = self.query.get(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or len(value) > 19 or not low <= int(value) <= high:
            raise ApiError("parameter_invalid", f"This must be an integer from {low} to {high}.", param=name)
        return int(value)

    def moment(self, name: str) -> datetime | None:
        """Return a query parameter that is a date-time with a time zone; None if it is absent."""
        value = self.query.get(name)
        if value is None:
            return None
        try:
            if "T" not in value.upper():
                raise ValueError("a date alone is not a date-time")
            return parse_iso(value)
        except (ValueError, OverflowError) as error:
            raise ApiError(
                "parameter_invalid", "This must be an ISO 8601 date-time with a time zone.", param=name
            ) from error

    def page(self, items: Collection, *wanted: Callable[[Json], bool]) -> Result:
        """Return the page of a list for the parameters ``limit`` and ``starting_after``."""
        limit = self.integer("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT
        starting_after = self.query.get("starting_after")
        return 200, items.page(limit, starting_after, lambda item: all(test(item) for test in wanted))

    def equal(self, field_name: str, value: str | None) -> Callable[[Json], bool]:
        """Return a filter that accepts items with this value in the field; all items if no value was given."""
        return lambda item: value is None or item.get(field_name) == value

    def created_between(self) -> Callable[[Json], bool]:
        """Return the filter of ``created_from`` and ``created_to``, both inclusive."""
        first, last = self.moment("created_from"), self.moment("created_to")
        if first is None and last is None:
            return lambda item: True

        def wanted(item: Json) -> bool:
            at = parse_iso(item["created_at"])
            return (first is None or at >= first) and (last is None or at <= last)

        return wanted


def _list_payment_methods(project: ProjectState, call: Call) -> Result:
    """Return the methods of the merchant's agreement for this country, currency and amount."""
    call.only("country", "currency", "amount")
    country, currency = call.option("country", COUNTRIES), call.option("currency", CURRENCIES)
    amount = call.integer("amount", MIN_AMOUNT, INT64_MAX)
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


def _list_payments(project: ProjectState, call: Call) -> Result:
    call.only("limit", "starting_after", "status", "merchant_reference", "created_from", "created_to")
    return call.page(
        project.payments.items,
        call.equal("status", call.option("status", PAYMENT_STATUSES)),
        call.equal("merchant_reference", call.query.get("merchant_reference")),
        call.created_between(),
    )


def _list_payouts(project: ProjectState, call: Call) -> Result:
    call.only("limit", "starting_after", "status", "merchant_reference")
    return call.page(
        project.payouts.items,
        call.equal("status", call.option("status", PAYOUT_STATUSES)),
        call.equal("merchant_reference", call.query.get("merchant_reference")),
    )


def _list_refunds(project: ProjectState, call: Call) -> Result:
    call.only("limit", "starting_after", "payment_id")
    return call.page(project.refunds.items, call.equal("payment_id", call.query.get("payment_id")))


def _list_balances(project: ProjectState, call: Call) -> Result:
    call.only()
    return 200, {"data": list(project.ledger.balances.values())}


def _list_webhook_endpoints(project: ProjectState, call: Call) -> Result:
    call.only()
    return 200, {"data": [endpoint.wire() for endpoint in project.endpoints.by_id.values()]}


def _list_events(project: ProjectState, call: Call) -> Result:
    call.only("limit", "starting_after", "type", "created_from", "created_to")
    return call.page(
        project.events.items, call.equal("type", call.option("type", EVENT_TYPES)), call.created_between()
    )


OPERATIONS: Final[dict[str, Callable[[ProjectState, Call], Result]]] = {
    "list_payment_methods": _list_payment_methods,
    "list_payments": _list_payments,
    "create_payment": lambda project, call: (201, project.payments.create(call.body)),
    "get_payment": lambda project, call: (200, project.payments.items.get_or_404(call.object_id)),
    "cancel_payment": lambda project, call: (200, project.payments.cancel(call.object_id)),
    "list_payouts": _list_payouts,
    "create_payout": lambda project, call: (201, project.payouts.create(call.body)),
    "get_payout": lambda project, call: (200, project.payouts.items.get_or_404(call.object_id)),
    "cancel_payout": lambda project, call: (200, project.payouts.cancel(call.object_id)),
    "list_refunds": _list_refunds,
    "create_refund": lambda project, call: (201, project.refunds.create(call.body)),
    "get_refund": lambda project, call: (200, project.refunds.items.get_or_404(call.object_id)),
    "create_deposit_reference": lambda project, call: (201, project.deposit_references.create(call.body)),
    "get_deposit_reference": lambda project, call: (200, project.deposit_references.items.get_or_404(call.object_id)),
    "list_balances": _list_balances,
    "list_webhook_endpoints": _list_webhook_endpoints,
    "create_webhook_endpoint": lambda project, call: (201, project.endpoints.create(call.body)),
    "delete_webhook_endpoint": lambda project, call: (200, project.endpoints.delete(call.object_id)),
    "rotate_webhook_secret": lambda project, call: (200, project.endpoints.rotate(call.object_id)),
    "list_events": _list_events,
    "get_event": lambda project, call: (200, project.events.items.get_or_404(call.object_id)),
}
BODILESS: Final = ("cancel_payment", "cancel_payout", "rotate_webhook_secret")  # POSTs without a body
