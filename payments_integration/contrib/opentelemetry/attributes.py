"""Make the attributes of spans and metrics. None holds a payer, a merchant reference or an exception's text."""

from __future__ import annotations

from typing import Any

from opentelemetry.util.types import AttributeValue

from payments_integration import telemetry
from payments_integration.exceptions import ProviderError
from payments_integration.models import Event

ACCOUNT = "payments.account"
EVENT_COUNT = "payments.batch.events"
EVENT_ID = "payments.event.id"
EVENT_TYPE = "payments.event.type"
OPERATION_ID = "payments.operation.id"
OPERATION_NAME = "payments.operation.name"
REQUEST_ID = "payments.request.id"

Attributes = dict[str, AttributeValue]


def of_received(fact: telemetry.Received) -> Attributes:
    return {
        ACCOUNT: fact.account,
        EVENT_TYPE: fact.type,
        "payments.event.source": fact.source,
        "payments.event.receipt": fact.receipt,
    }


def what(item: Any) -> str:
    """Return an event's type. For a change that an answer brought, return text such as ``payment succeeded``."""
    return str(item.type) if isinstance(item, Event) else f"{item.object_kind} {item.status}"


def of_item(item: Any) -> Attributes:
    known: Attributes = {
        ACCOUNT: item.account,
        "payments.object.kind": item.object_kind,
        "payments.object.id": item.object_id,
    }
    if isinstance(item, Event):
        known |= {EVENT_ID: item.pk, EVENT_TYPE: item.type}
    return known


def of_sending(activity: telemetry.Sending) -> Attributes:
    operation = activity.operation
    return {
        ACCOUNT: operation.account,
        OPERATION_ID: operation.pk,
        OPERATION_NAME: operation.operation,
        "payments.operation.is_repeated": activity.is_repeated,
    }


def of_exchange(activity: telemetry.Exchange) -> Attributes:
    known: Attributes = {
        ACCOUNT: activity.account,
        "http.request.method": activity.method,
        "url.template": activity.route,
    }
    if activity.status_code:
        known["http.response.status_code"] = activity.status_code
    return known


def type_of(error: BaseException) -> Attributes:
    """Return the type of an exception. There are few, so metrics may have it."""
    return {"error.type": f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")}


def of_error(error: BaseException) -> Attributes:
    """Return the type of an exception, and the provider's code if it has one."""
    known = type_of(error)
    if isinstance(error, ProviderError) and error.code:
        known["payments.error.code"] = error.code
    return known
