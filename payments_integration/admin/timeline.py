"""What happened to an object, in one column, newest first: events, status changes, operations, and who did what here.

The provider's clock and ours stand side by side: events and changes have the provider's time, the others our own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.admin.utils import quote
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration.admin import display
from payments_integration.admin.buttons import may_view
from payments_integration.admin.operation_names import in_words
from payments_integration.admin.panels import Section
from payments_integration.models import (
    Event,
    EventSource,
    EventState,
    Mirror,
    Operation,
    OperationState,
    StatusChange,
)

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Entries shown, and read of each source: the lists have the others.
ENTRIES = 50


@dataclass(frozen=True, slots=True)
class Entry:
    at: datetime
    #: Of what happened in one moment, the higher one is shown as the later.
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
    #: Where all of it stands: label and address.
    lists: list[tuple[StrOrPromise, str]]


def of(site: AdminSite, request: HttpRequest, obj: Mirror) -> Timeline:
    """The newest entries of a mirrored object that this user may see. Four queries at most."""
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
        sources.append([_operation(site, row) for row in operations])
        lists.append((gettext_lazy("All operations"), _found(site, Operation, obj)))
    sources.append([_log(site, row, obj) for row in _logged(obj, operations)])
    lists.append((gettext_lazy("All actions in this admin"), _history_url(site, obj)))
    entries = heapq.nlargest(ENTRIES, (entry for source in sources for entry in source), key=lambda entry: entry.order)
    return Timeline(entries, [(label, url) for label, url in lists if url])


def about(model: type[Any], obj: Mirror) -> QuerySet[Any]:
    """Rows of the history that name a mirrored object."""
    rows: QuerySet[Any] = model._default_manager.filter(
        account=obj.account, object_kind=obj.kind, object_id=obj.object_id
    )
    return rows


def _newest(rows: QuerySet[Any], time: str) -> Iterator[Any]:
    return iter(rows.order_by(f"-{time}", "-pk")[:ENTRIES])


def _operations(obj: Mirror) -> list[Operation]:
    """Those on the object and those that made it.

    A union, because each half has an index of its own: with OR a database may walk all operations by their time.
    """
    rows = Operation.objects.filter(account=obj.account).defer("body", "arguments", "error", "note")
    both = rows.filter(target_id=obj.object_id).union(rows.filter(result_id=obj.object_id), all=True)
    # One that is about the object and has it as its result, such as a cancel, comes twice.
    found = {row.pk: row for row in both.order_by("-created_at")[: 2 * ENTRIES]}
    return list(found.values())[:ENTRIES]


def _logged(obj: Mirror, operations: list[Operation]) -> Iterator[LogEntry]:
    """What people did in this admin to the object, and to the operations that are shown."""
    wanted = Q(content_type=get_content_type_for_model(obj), object_id=str(obj.pk))
    if operations:
        ids = [operation.pk for operation in operations]
        wanted |= Q(content_type=get_content_type_for_model(Operation), object_id__in=ids)
    rows = LogEntry.objects.filter(wanted).select_related("user").order_by("-action_time", "-pk")
    return iter(rows[:ENTRIES])


def _event(site: AdminSite, row: Event) -> Entry:
    source = dict(EventSource.choices).get(row.source, row.source)
    details = [_("received %(at)s by %(source)s") % {"at": display.moment(row.received_at), "source": source}]
    title = display.admin_link(site, Event, row.pk, row.type)
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


def _operation(site: AdminSite, row: Operation) -> Entry:
    title = format_html(
        "{} {} {}",
        display.admin_link(site, Operation, row.pk, in_words(row.operation)),
        display.money(row.amount, row.currency) if row.amount is not None else "",
        display.status(row.state, OperationState),
    )
    details = []
    if row.actor:
        details.append(_("asked by %(who)s") % {"who": display.text(row.actor)})
    if row.approved_by:
        values = {"who": display.text(row.approved_by), "at": display.moment(row.approved_at)}
        details.append(_("approved by %(who)s at %(at)s") % values)
    if row.request_ids:
        details.append(_("request ids %(ids)s") % {"ids": display.text(", ".join(map(str, row.request_ids)))})
    return Entry(row.created_at, 0, gettext_lazy("Operation"), title, tuple(details))


def _log(site: AdminSite, row: LogEntry, obj: Mirror) -> Entry:
    words = f"{row.user.get_username()}: {row.get_change_message()}"
    is_own = row.content_type_id == get_content_type_for_model(obj).pk
    details = () if is_own else (display.admin_link(site, Operation, row.object_id),)
    return Entry(row.action_time, 3, gettext_lazy("Person"), display.text(words), details)


def _found(site: AdminSite, model: type[Model], obj: Mirror) -> str:
    url = display.list_url(site, model)
    return f"{url}?{urlencode({'q': obj.object_id})}" if url else ""


def _history_url(site: AdminSite, obj: Mirror) -> str:
    name = f"admin:{obj._meta.app_label}_{obj._meta.model_name}_history"
    try:
        return reverse(name, args=(quote(str(obj.pk)),), current_app=site.name)
    except NoReverseMatch:
        return ""
