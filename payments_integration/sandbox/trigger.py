"""Make an object and lead it to an event, by requests and actions that the provider's document allows ("Events").

The steps are the same as at the provider: a triggered ``refund.succeeded`` creates a payment, lets it be paid, and
refunds it. Every change sends its webhooks.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from .catalog import MAX_AMOUNT, METHODS, payout_fee
from .operations import OPERATIONS, Call
from .payments import TRANSFERS, Payments
from .project import ProjectState
from .protocol import EVENT_TYPES, ApiError, Json
from .resources import Resources, SandboxError

DEFAULT_AMOUNT: Final = 10_000
DEFAULT_DESTINATION: Final[Json] = {
    "type": "bank_account",
    "bank_code": "001",
    "account_number": "1234567890",
    "account_type": "checking",
    "holder_name": "Ana Soto",
    "holder_document": {"type": "RUT", "number": "11111111-1"},
}
#: Maps an event that only some families have to these families ("States and transitions").
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "payment.partially_paid": TRANSFERS,
    "payment.overpaid": TRANSFERS,
    "payment.chargeback": ("card",),
}
#: A transfer to a deposit reference is paid when it is created.
DEPOSIT_EVENTS: Final = ("payment.created", "payment.succeeded", "payment.overpaid", "balance.updated")
#: A card on file is processing at once in the s2s flow.
DIRECT_EVENTS_MISSED: Final = ("payment.requires_action", "payment.expired", "payment.canceled")


#: The steps from a new object to each event: methods of its collection, or OWN_STEPS. An existing object takes only
#: the last one.
STEPS: Final[dict[str, tuple[str, ...]]] = {
    "payment.created": (),
    "payment.requires_action": ("open_page",),
    "payment.processing": ("open_page", "process"),
    "payment.succeeded": ("open_page", "pay"),
    "payment.failed": ("open_page", "fail"),
    "payment.expired": ("open_page", "expire"),
    "payment.canceled": ("open_page", "cancel"),
    "payment.on_hold": ("open_page", "hold"),
    "payment.partially_paid": ("open_page", "pay_a_part"),
    "payment.overpaid": ("open_page", "pay_too_much"),
    "payment.chargeback": ("open_page", "pay", "chargeback"),
    "payout.created": (),
    "payout.processing": ("process",),
    "payout.succeeded": ("succeed",),
    "payout.failed": ("process", "fail"),
    "payout.canceled": ("cancel",),
    "payout.on_hold": ("hold",),
    "payout.delayed": ("process", "delay"),
    "payout.returned": ("succeed", "return_"),
    "refund.created": (),
    "refund.processing": ("process",),
    "refund.succeeded": ("succeed",),
    "refund.failed": ("process", "fail"),
    "refund.returned": ("succeed", "return_"),
    "balance.updated": ("open_page", "pay"),
}


def _pay_a_part(payments: Payments, payment_id: str) -> Json:
    return payments.pay(payment_id, _rest(payments, payment_id) // 2)


def _pay_too_much(payments: Payments, payment_id: str) -> Json:
    rest = max(0, _rest(payments, payment_id))
    return payments.pay(payment_id, min(rest + max(1, rest // 10), MAX_AMOUNT))


def _rest(payments: Payments, payment_id: str) -> int:
    payment = payments.items.find(payment_id)
    return int(payment["amount"] - payment["amount_received"])


OWN_STEPS: Final[dict[str, Callable[[Payments, str], Json]]] = {
    "pay_a_part": _pay_a_part,
    "pay_too_much": _pay_too_much,
}


def trigger(project: ProjectState, event: str, values: Json | None = None, object_id: str | None = None) -> Json:
    """Make an object, or take the one with ``object_id``, and lead it to this event type.

    ``values`` are fields of the request that creates the object. Other fields have defaults. Returns ``{event, object,
    events, endpoints}``: the object as it is now, all events that were sent on the way, and the ids of the active
    webhook endpoints that take the event. Raises ApiError as a request would, and SandboxError if the object's status
    does not allow the change. Callers hold the engine's lock.
    """
    if event not in EVENT_TYPES:
        raise _unknown(event)
    start = len(project.events.items)
    if object_id is None:
        steps, item = STEPS[event], _new(project, event, values or {})
    else:
        steps, item = STEPS[event][-1:], _found(project, event, values, object_id)

    def is_reached() -> bool:
        about = (None, item["id"])  # a balance has no id
        sent = project.events.items.since(start)
        return any(other["type"] == event and other["data"].get("id") in about for other in sent)

    for step in steps:
        if not is_reached():
            _take(project, step, item)
    if not is_reached():
        raise SandboxError(f"a {item['object']} that is {item['status']} does not come to {event}")
    shown = project.ledger.balances[item["currency"]] if event == "balance.updated" else item
    endpoints = [endpoint.id for endpoint in project.endpoints.subscribers(event)]
    events = project.events.items.since(start)
    return copy.deepcopy({"event": event, "object": shown, "events": events, "endpoints": endpoints})


def _take(project: ProjectState, step: str, item: Json) -> None:
    if step in OWN_STEPS:
        OWN_STEPS[step](project.payments, item["id"])
    else:
        getattr(_resources(project)[item["object"]], step)(item["id"])


def _resources(project: ProjectState) -> dict[str, Resources]:
    return {"payment": project.payments, "payout": project.payouts, "refund": project.refunds}


def parse_assignments(lines: Iterable[str]) -> Json:
    """Parse ``["amount=11980", "payer.email=ana@example.cl"]`` into a JSON object.

    A value that is JSON (``11980``, ``true``, ``null``, ``"11"``, ``{…}``) is parsed. Any other value is a text.
    Raises ApiError that names the key.
    """
    found: Json = {}
    for line in lines:
        key, separator, text = line.partition("=")
        names = key.strip().split(".")
        if not separator or not all(names):
            raise ApiError("parameter_invalid", f"Write key=value, such as amount=11980, not {line!r}.", param="set")
        inner = found
        for name in names[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ApiError("parameter_invalid", "An earlier value leaves no room for this one.", param=key.strip())
        if names[-1] in inner:
            raise ApiError("parameter_invalid", "This key has a value already.", param=key.strip())
        inner[names[-1]] = _value(text.strip())
    return found


def _value(text: str) -> Any:
    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return text


def _unknown(event: str) -> ApiError:
    close = difflib.get_close_matches(event, EVENT_TYPES, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return ApiError(
        "parameter_invalid",
        f"There is no event type {event!r}.{hint} One of: {', '.join(EVENT_TYPES)}.",
        param="event",
    )


# an existing object


def _found(project: ProjectState, event: str, values: Json | None, object_id: str) -> Json:
    kind = event.partition(".")[0]
    resources = _resources(project).get(kind)
    if resources is None or not STEPS[event]:
        raise ApiError("parameter_invalid", f"{event} does not happen to an object that exists.", param="object")
    if values:
        raise ApiError("parameter_invalid", "An object that exists keeps its fields.", param="set")
    item = resources.items.get(object_id)
    if item is None:
        hint = " To refund a payment that exists, set payment_id." if kind == "refund" else ""
        raise ApiError("resource_not_found", f"There is no {kind} {object_id!r}.{hint}", param="object")
    return item


# a new object


def _new(project: ProjectState, event: str, values: Json) -> Json:
    if event.startswith("refund."):
        return _new_refund(project, values)
    if event.startswith("payout."):
        body = {**_where("payout", values), "amount": DEFAULT_AMOUNT, **values}
        body["destination"] = _merged(DEFAULT_DESTINATION, values.get("destination", {}))
        return _with_money(project, "create_payout", body)
    if values.get("flow") == "deposit_reference":
        return _new_deposit(project, event, values)
    body = _payment_body(values, FAMILIES.get(event, ("card",)))
    _check_payment(event, body)
    return _call(project, "create_payment", body)


def _payment_body(values: Json, families: tuple[str, ...]) -> Json:
    return {**_where("payment", values, families), "amount": DEFAULT_AMOUNT, **values}


def _check_payment(event: str, body: Json) -> None:
    """Refuse values that would fail only after the payment exists. The request itself refuses wrong values."""
    method, amount = METHODS.get(str(body["method_code"])), body["amount"]
    if method is None or type(amount) is not int:
        return
    families = FAMILIES.get(event, (method.family,))
    if method.family not in families:
        message = f"{event} is for {' and '.join(families)}; {method.code} is {method.family}."
        raise ApiError("parameter_invalid", message, param="method_code")
    if event == "payment.partially_paid" and amount == 1:
        raise ApiError("amount_out_of_range", "An amount of 1 has no parts.", param="amount")
    if event == "payment.overpaid" and amount >= MAX_AMOUNT:
        raise ApiError("amount_out_of_range", "No transfer is larger than this amount.", param="amount")
    if body.get("flow") == "s2s" and method.next_action == "none" and event in DIRECT_EVENTS_MISSED:
        message = f"A payment by {method.code} is processing at once in this flow, and never comes to {event}."
        raise ApiError("parameter_invalid", message, param="flow")


def _new_deposit(project: ProjectState, event: str, values: Json) -> Json:
    """Return the payment that a transfer to a new deposit reference makes."""
    if event not in DEPOSIT_EVENTS:
        message = f"A transfer to a deposit reference is paid at once, and never comes to {event}."
        raise ApiError("parameter_invalid", message, param="flow")
    amount = values.get("amount", DEFAULT_AMOUNT)
    if type(amount) is not int or not 0 < amount <= MAX_AMOUNT:
        message = f"This must be an integer from 1 to {MAX_AMOUNT}, in minor units."
        raise ApiError("parameter_invalid", message, param="amount")
    given = {name: value for name, value in values.items() if name not in ("flow", "amount")}
    reference = _call(project, "create_deposit_reference", {**_where("deposit_reference", given), **given})
    return project.deposit_references.transfer(reference["id"], amount)


def _new_refund(project: ProjectState, values: Json) -> Json:
    """Return a refund of the payment in ``payment_id``, or of a new paid payment."""
    body = dict(values)
    if "destination" in body:
        body["destination"] = _merged(DEFAULT_DESTINATION, body["destination"])
    if "payment_id" not in body:
        _check_refund(project, body)
        families = TRANSFERS if "destination" in body else ("card",)
        amount = body.get("amount") or DEFAULT_AMOUNT
        body["payment_id"] = _new_paid(project, _payment_body({"amount": amount}, families))["id"]
    payment = project.payments.items.get(str(body["payment_id"]))
    if payment is not None and payment["method_family"] != "card":
        body.setdefault("destination", copy.deepcopy(DEFAULT_DESTINATION))
    return _with_money(project, "create_refund", body)


def _new_paid(project: ProjectState, body: Json) -> Json:
    payment = _call(project, "create_payment", body)
    project.payments.open_page(payment["id"])
    return project.payments.pay(payment["id"])


def _check_refund(project: ProjectState, body: Json) -> None:
    """Raise the request's own error for a wrong field while there is no payment to refund yet."""
    try:
        _call(project, "create_refund", {**body, "payment_id": "pay_not_made_yet"})
    except ApiError as error:
        if error.code != "resource_not_found":
            raise


def _with_money(project: ProjectState, operation: str, body: Json) -> Json:
    """Run a request that spends money. If the balance is too low, a payer first transfers more than is missing."""
    try:
        return _call(project, operation, body)
    except ApiError as error:
        if error.code != "insufficient_balance":
            raise
    payment = project.payments.items.get(str(body.get("payment_id"))) or body
    where = {"currency": payment["currency"], "country": payment["country"]}
    spent = body.get("amount") or payment["amount_received"]
    missing = spent + payout_fee(payment["currency"]) + project.ledger.debt(payment["currency"])
    _new_paid(project, _payment_body({**where, "amount": min(2 * missing, MAX_AMOUNT)}, TRANSFERS))
    return _call(project, operation, body)


def _call(project: ProjectState, operation: str, body: Json) -> Json:
    return OPERATIONS[operation](project, Call(body=body))[1]


def _where(use: str, values: Json, families: tuple[str, ...] = ()) -> Json:
    """Return a country, currency and method that fit the given values, of one of these families if possible."""
    fitting = [
        {"country": method.country, "currency": method.currency, "method_code": method.code}
        for method in sorted(METHODS.values(), key=lambda method: method.family not in families)
        if use in method.uses
    ]
    for found in fitting:
        if all(values.get(name, value) == value for name, value in found.items()):
            return found
    return fitting[0]


def _merged(base: Json, changes: Any) -> Any:
    """Return a deep copy of an object with these changes. Anything but an object replaces it."""
    if not isinstance(changes, dict):
        return changes
    merged = copy.deepcopy(base)
    for name, value in changes.items():
        merged[name] = _merged(merged[name], value) if isinstance(merged.get(name), dict) else value
    return merged
