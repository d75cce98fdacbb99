"""The timeline of an object, newest first: its events, status changes, refunds, operations, and actions in this admin.

Events, status changes and refunds have the provider's time, operations and actions have ours.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import services
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import hidden, may_view
from payments_integration.admin.shared.sections import Section
from payments_integration.enums import RefundStatus
from payments_integration.models import (
    MIRRORS,
    Event,
    EventSource,
    EventState,
    Mirror,
    Operation,
    OperationState,
    Payment,
    Refund,
    StatusChange,
)

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

_SOURCES = (Event, StatusChange, Operation)
#: Entries shown, and read from each source. The lists have the others.
ENTRIES = 50


@dataclass(frozen=True, slots=True)
class Entry:
    at: datetime
    #: Of two entries with the same time, the one with the higher rank is shown as the later.
    rank: int
    kind: StrOrPromise
    #: Links, badges and plain text, escaped.
    title: str
    details: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[float, int]:
        return (self.at.timestamp(), self.rank)

    @property
    def shown_at(self) -> str:
        return display.moment(self.at)


@dataclass(frozen=True, slots=True)
class Timeline(Section):
    template: ClassVar[str] = "admin/payments_integration/includes/timeline.html"

    entries: list[Entry]
    #: Label and URL of the lists with all entries.
    lists: list[tuple[StrOrPromise, str]]
    #: The sources that this user may not see.
    hidden: list[StrOrPromise]


def timeline(site: AdminSite, request: HttpRequest, obj: Mirror) -> Timeline:
    """The newest entries of a mirrored object that this user may see.

    Four queries, one more for the refunds of a payment, and one for each kind of object that its operations made.
    """
    sources: list[list[Entry]] = []
    lists: list[tuple[StrOrPromise, str]] = []
    operations: list[Operation] = []
    if may_view(site, request, Event):
        sources.append([_event(site, row) for row in _newest(about(Event, obj).defer("body", "error"), "created_at")])
        lists.append((gettext_lazy("All events"), _found(site, Event, obj)))
    if may_view(site, request, StatusChange):
        sources.append([_change(site, row) for row in _newest(about(StatusChange, obj).defer("error"), "at")])
        lists.append((gettext_lazy("All status changes"), _found(site, StatusChange, obj)))
    if may_view(site, request, Operation):
        operations = _operations(obj)
        results = _results(site, request, obj, operations)
        sources.append([_operation(site, row, obj, results) for row in operations])
        lists.append((gettext_lazy("All operations"), _found(site, Operation, obj)))
    if isinstance(obj, Payment) and may_view(site, request, Refund):
        asked = {operation.result_id for operation in operations}
        sources.append([_refund(site, row) for row in _newest(_refunds(obj), "created_at") if row.pk not in asked])
    sources.append([_log(site, row, obj) for row in _logged(obj, operations)])
    lists.append((gettext_lazy("All actions in this admin"), display.page_url(site, type(obj), "history", obj.pk)))
    entries = heapq.nlargest(ENTRIES, (entry for source in sources for entry in source), key=lambda entry: entry.order)
    return Timeline(entries, [(label, url) for label, url in lists if url], hidden(site, request, *_SOURCES))


def about(model: type[Any], obj: Mirror) -> QuerySet[Any]:
    """Rows of ``model`` about a mirrored object."""
    rows: QuerySet[Any] = model._default_manager.filter(
        account=obj.account, object_kind=obj.kind, object_id=obj.object_id
    )
    return rows


def _newest(rows: QuerySet[Any], time: str) -> Iterator[Any]:
    return iter(rows.order_by(f"-{time}", "-pk")[:ENTRIES])


def _operations(obj: Mirror) -> list[Operation]:
    """The operations on the object and the one that created it.

    A union, because each half has its own index. With OR a database may scan all operations by time.
    """
    rows = Operation.objects.filter(account=obj.account).defer("body", "arguments", "error", "note")
    both = rows.filter(target_id=obj.object_id).union(rows.filter(result_id=obj.object_id), all=True)
    # An operation whose target is also its result, such as a cancel, is in both halves.
    found = {row.pk: row for row in both.order_by("-created_at")[: 2 * ENTRIES]}
    return list(found.values())[:ENTRIES]


def _results(
    site: AdminSite, request: HttpRequest, obj: Mirror, operations: list[Operation]
) -> dict[tuple[str, str], Any]:
    """The objects that operations made, as they are now, by kind and id, as far as this user may see them."""
    wanted = defaultdict(set)
    for operation in operations:
        if _made(operation) and operation.result_id != obj.object_id:
            wanted[operation.result_kind].add(operation.result_id)
    found: dict[tuple[str, str], Any] = {(obj.kind, obj.object_id): obj}
    for kind, ids in wanted.items():
        model = MIRRORS.get(kind)
        if model is not None and hasattr(model, "Status") and may_view(site, request, model):
            rows = model._default_manager.filter(account=obj.account, pk__in=ids).only("status")
            found |= {(kind, row.pk): row for row in rows}
    return found


def _made(operation: Operation) -> bool:
    """Whether the operation made an object. Then the object's status says more than the operation's state."""
    call = services.operations.get(operation.operation)
    return call is not None and call.creates and operation.state == OperationState.DONE


def _refunds(payment: Payment) -> QuerySet[Refund]:
    rows = Refund.objects.filter(account=payment.account, payment_id=payment.pk)
    return rows.only("status", "amount", "currency", "created_at")


def _logged(obj: Mirror, operations: list[Operation]) -> Iterator[LogEntry]:
    """The actions in this admin on the object and on the operations that are shown."""
    wanted = Q(content_type=get_content_type_for_model(obj), object_id=str(obj.pk))
    if operations:
        ids = [operation.pk for operation in operations]
        wanted |= Q(content_type=get_content_type_for_model(Operation), object_id__in=ids)
    rows = LogEntry.objects.filter(wanted).select_related("user").order_by("-action_time", "-pk")
    return iter(rows[:ENTRIES])


def _event(site: AdminSite, row: Event) -> Entry:
    source = dict(EventSource.choices).get(row.source, row.source)
    details = [_("received %(at)s by %(source)s") % {"at": display.moment(row.received_at), "source": source}]
    title = display.admin_link(site, Event, row.pk, display.event_name(row.type))
    if row.state != EventState.DONE:
        title = format_html("{} {}", title, display.status(row.state, EventState))
    return Entry(row.created_at, 1, gettext_lazy("Event"), title, (*details, display.text(row.pk)))


def _change(site: AdminSite, row: StatusChange) -> Entry:
    before = display.status_word(row.object_kind, row.previous_status) if row.previous_status else _("new")
    words = f"{before} → {display.status_word(row.object_kind, row.status)}"
    brought = display.admin_link(site, Event, row.event_id) if row.event_id else _("an answer")
    return Entry(
        row.at,
        2,
        gettext_lazy("Status"),
        display.admin_link(site, StatusChange, row.pk, words),
        (format_html(_("brought by {}"), brought),),
    )


def _operation(site: AdminSite, row: Operation, obj: Mirror, results: dict[tuple[str, str], Any]) -> Entry:
    state = display.status(row.state, OperationState)
    details = []
    if _made(row):
        # That the provider accepted a refund says nothing about what became of it.
        result = results.get((row.result_kind, row.result_id))
        quiet = display.status(row.state, OperationState, tone="quiet")
        state = display.status(result.status, result.Status) if result is not None else quiet
        if row.result_id != obj.object_id:
            details.append(display.object_link(site, row.account, row.result_kind, row.result_id))
    title = format_html(
        "{} {} {}",
        display.admin_link(site, Operation, row.pk, display.operation_name(row.operation)),
        display.money(row.amount, row.currency) if row.amount is not None else "",
        state,
    )
    if row.actor:
        details.append(_("asked by %(who)s") % {"who": display.actor(row.actor)})
    if row.approved_by:
        values = {"who": display.actor(row.approved_by), "at": display.moment(row.approved_at)}
        details.append(_("approved by %(who)s at %(at)s") % values)
    if row.request_ids:
        details.append(_("request ids %(ids)s") % {"ids": display.text(", ".join(map(str, row.request_ids)))})
    return Entry(row.created_at, 0, gettext_lazy("Operation"), title, tuple(details))


def _refund(site: AdminSite, row: Refund) -> Entry:
    """A refund that no shown operation asked for, for instance one made in the provider's dashboard."""
    title = format_html(
        "{} {} {}",
        display.admin_link(site, Refund, row.pk),
        display.money(row.amount, row.currency),
        display.status(row.status, RefundStatus),
    )
    return Entry(row.created_at, 0, gettext_lazy("Refund"), title)


def _log(site: AdminSite, row: LogEntry, obj: Mirror) -> Entry:
    words = f"{row.user.get_username()}: {row.get_change_message()}"
    is_own = row.content_type_id == get_content_type_for_model(obj).pk
    details = () if is_own else (display.admin_link(site, Operation, row.object_id),)
    return Entry(row.action_time, 3, gettext_lazy("Person"), display.text(words), details)


def _found(site: AdminSite, model: type[Model], obj: Mirror) -> str:
    url = display.list_url(site, model)
    return f"{url}?{urlencode({'q': obj.object_id})}" if url else ""
