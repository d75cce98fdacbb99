"""List the records of an object, newest first, with a link to each."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.db.models import Model
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import hidden
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.contrib.backoffice.admin.sections.records import ENTRIES, Records, made
from payments_integration.enums import RefundStatus
from payments_integration.models import (
    Event,
    EventSource,
    EventState,
    Mirror,
    Operation,
    OperationState,
    Refund,
    StatusChange,
)
from payments_integration.validation.text import StrOrPromise

_SOURCES = (Event, StatusChange, Operation)


@dataclass(frozen=True, slots=True)
class Entry:
    at: datetime
    #: If two entries have the same time, the one with the higher rank is shown as the later one.
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
    template: ClassVar[str] = "admin/payments_backoffice/includes/timeline.html"

    entries: list[Entry]
    #: Label and URL of the lists with all entries.
    lists: list[tuple[StrOrPromise, str]]
    #: The names of the sources that this user may not see.
    hidden: list[StrOrPromise]


def timeline(page: Page, obj: Mirror, records: Records) -> Timeline:
    """Return the newest entries of a mirrored object that this user may see. Takes no queries."""
    site = page.site
    sources: list[list[Entry]] = [
        [_event(site, row) for row in records.events],
        [_change(site, row) for row in records.changes],
        [_operation(site, row, obj, records.results) for row in records.operations],
        [_log(site, row, obj) for row in records.logged],
    ]
    asked = {operation.result_id for operation in records.operations}
    sources.append([_refund(site, row) for row in records.refunds if row.pk not in asked])
    labels = (
        (Event, gettext_lazy("All events")),
        (StatusChange, gettext_lazy("All status changes")),
        (Operation, gettext_lazy("All operations")),
    )
    lists = [(label, _found(site, model, obj)) for model, label in labels if page.may_view(model)]
    lists.append((gettext_lazy("All actions in this admin"), display.page_url(site, type(obj), "history", obj.pk)))
    entries = heapq.nlargest(ENTRIES, (entry for source in sources for entry in source), key=lambda entry: entry.order)
    return Timeline(entries, [(label, url) for label, url in lists if url], hidden(site, page.request, *_SOURCES))


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
    if made(row):
        # The provider accepted the request, but the object's own status says what became of it.
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
        details.append(_("asked by %(who)s") % {"who": display.requester(site, row)})
    if row.approved_by:
        values = {"who": display.actor(row.approved_by), "at": display.moment(row.approved_at)}
        details.append(_("approved by %(who)s at %(at)s") % values)
    if row.request_ids:
        details.append(_("request ids %(ids)s") % {"ids": display.text(", ".join(map(str, row.request_ids)))})
    return Entry(row.created_at, 0, gettext_lazy("Operation"), title, tuple(details))


def _refund(site: AdminSite, row: Refund) -> Entry:
    """Return the entry of a refund that no shown operation asked for, such as one from the provider's dashboard."""
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
