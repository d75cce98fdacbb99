"""Read what is stored about an object: its events, status changes, operations, refunds, and actions in this admin.

Events, status changes and refunds have the provider's time. Operations and actions have our time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.db.models import Q, QuerySet

from payments_integration import services
from payments_integration.admin.shared.history import may_read
from payments_integration.admin.shared.sections import Page, about, once
from payments_integration.models import (
    MIRRORS,
    Event,
    Mirror,
    Operation,
    OperationState,
    Payment,
    Refund,
    StatusChange,
)

#: How many rows of each kind are read, newest first. The lists have the others.
ENTRIES = 50


@dataclass(frozen=True, slots=True)
class Records:
    """The newest rows of each kind, newest first, as far as the user may see them."""

    events: list[Event]
    changes: list[StatusChange]
    operations: list[Operation]
    #: The objects that operations created, as they are now, by kind and id.
    results: dict[tuple[str, str], Any]
    #: The refunds of a payment; empty for other objects.
    refunds: list[Refund]
    #: When each of these refunds came into its present status, by id.
    reached: dict[str, datetime]
    logged: list[LogEntry]


def read(page: Page, obj: Mirror) -> Records:
    """Return the records of a mirrored object, which are read once per page.

    Takes four queries, two more for the refunds of a payment, and one for each kind of object that its operations
    created.
    """
    return once(obj, "pi_records", lambda: _read(page, obj))


def _read(page: Page, obj: Mirror) -> Records:
    events = _newest(about(Event, obj).defer("body", "error"), "created_at") if page.may_view(Event) else []
    changes = _newest(about(StatusChange, obj).defer("error"), "at") if page.may_view(StatusChange) else []
    operations = _operations(obj) if page.may_view(Operation) else []
    results = _results(page, obj, operations)
    refunds = _newest(_refunds(obj), "created_at") if isinstance(obj, Payment) and page.may_view(Refund) else []
    logged = [entry for entry in _logged(obj, operations) if may_read(page, obj.object_id, entry)]
    return Records(events, changes, operations, results, refunds, _reached(obj, refunds), logged)


def _newest(rows: QuerySet[Any], time: str) -> list[Any]:
    return list(rows.order_by(f"-{time}", "-pk")[:ENTRIES])


def _operations(obj: Mirror) -> list[Operation]:
    """Return the operations on the object and the one that created it.

    Uses a union, because each half has its own index. With OR, a database may scan all operations by time.
    """
    rows = Operation.objects.filter(account=obj.account).defer("body", "arguments", "error", "note")
    both = rows.filter(target_id=obj.object_id).union(rows.filter(result_id=obj.object_id), all=True)
    # An operation whose target is also its result, such as a cancel, is in both halves.
    found = {row.pk: row for row in both.order_by("-created_at")[: 2 * ENTRIES]}
    return list(found.values())[:ENTRIES]


def _results(page: Page, obj: Mirror, operations: list[Operation]) -> dict[tuple[str, str], Any]:
    wanted = defaultdict(set)
    for operation in operations:
        if made(operation) and operation.result_id != obj.object_id:
            wanted[operation.result_kind].add(operation.result_id)
    found: dict[tuple[str, str], Any] = {(obj.kind, obj.object_id): obj}
    for kind, ids in wanted.items():
        model = MIRRORS.get(kind)
        if model is not None and hasattr(model, "Status") and page.may_view(model):
            rows = model._default_manager.filter(account=obj.account, pk__in=ids).only("status")
            found |= {(kind, row.pk): row for row in rows}
    return found


def made(operation: Operation) -> bool:
    """Return True if the operation created an object. Its status then says more than the operation's state."""
    call = services.operations.get(operation.operation)
    return call is not None and call.creates and operation.state == OperationState.DONE


def _refunds(payment: Payment) -> QuerySet[Refund]:
    rows = Refund.objects.filter(account=payment.account, payment_id=payment.pk)
    return rows.only("status", "amount", "currency", "reason", "created_at")


def _reached(obj: Mirror, refunds: list[Refund]) -> dict[str, datetime]:
    status = {refund.pk: refund.status for refund in refunds}
    if not status:
        return {}
    changes = StatusChange.objects.filter(account=obj.account, object_kind=Refund.kind, object_id__in=status)
    rows = changes.order_by("at", "pk").values_list("object_id", "status", "at")
    return {object_id: at for object_id, reached, at in rows if reached == status[object_id]}


def _logged(obj: Mirror, operations: list[Operation]) -> list[LogEntry]:
    """Return the actions in this admin on the object and on the operations that are shown."""
    wanted = Q(content_type=get_content_type_for_model(obj), object_id=str(obj.pk))
    if operations:
        ids = [operation.pk for operation in operations]
        wanted |= Q(content_type=get_content_type_for_model(Operation), object_id__in=ids)
    rows = LogEntry.objects.filter(wanted).select_related("user").order_by("-action_time", "-pk")
    return list(rows[:ENTRIES])
