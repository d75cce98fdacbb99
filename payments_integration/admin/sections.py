"""What belongs to an object, in tables under its fields: refunds, payouts, events, status changes, operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from payments_integration.admin import display
from payments_integration.models import (
    Event,
    EventSource,
    EventState,
    Mirror,
    Operation,
    OperationState,
    Payment,
    Payout,
    Refund,
    StatusChange,
)

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Rows shown per table, newest first; the list has the others.
ROWS = 25

Cell = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Section:
    title: StrOrPromise
    columns: tuple[StrOrPromise, ...]
    rows: list[tuple[str, ...]]
    #: The list with all of them; empty when all are shown.
    more: str


@dataclass(frozen=True, slots=True)
class Page:
    """Whose page it is, on which site, and who looks."""

    site: AdminSite
    request: HttpRequest

    def section(
        self, title: StrOrPromise, rows: QuerySet[Any], columns: dict[StrOrPromise, Cell], search: str
    ) -> Iterable[Section]:
        """One table, or none for who may not see such rows."""
        model = rows.model
        if not self.site.is_registered(model):
            return
        if not self.site.get_model_admin(model).has_view_permission(self.request):
            return
        found = list(rows[: ROWS + 1])
        more = ""
        if len(found) > ROWS:
            more = f"{display.list_url(self.site, model)}?{urlencode({'q': search})}"
        cells = [tuple(cell(row) for cell in columns.values()) for row in found[:ROWS]]
        yield Section(title, tuple(columns), cells, more)

    def history(self, obj: Mirror) -> Iterable[Section]:
        """Events, status changes and operations of a mirrored object."""
        yield from self.changes_of(obj)
        yield from self.section(
            _("Events"),
            about(Event, obj).defer("body", "error").order_by("-created_at", "-pk"),
            {
                _("Event"): lambda row: display.admin_link(self.site, Event, row.pk),
                _("Type"): lambda row: display.text(row.type),
                _("Created at"): lambda row: display.moment(row.created_at),
                _("Received at"): lambda row: display.moment(row.received_at),
                _("Source"): lambda row: display.text(dict(EventSource.choices).get(row.source, row.source)),
                _("State"): lambda row: display.status(row.state, EventState),
            },
            obj.object_id,
        )
        yield from self.operations(obj.account, obj.object_id)

    def changes_of(self, obj: Mirror) -> Iterable[Section]:
        return self.changes(about(StatusChange, obj).order_by("-at", "-pk"), obj.object_id)

    def changes(self, rows: QuerySet[StatusChange], search: str) -> Iterable[Section]:
        return self.section(
            _("Status changes"),
            rows,
            {
                _("At"): lambda row: display.admin_link(self.site, StatusChange, row.pk, display.moment(row.at)),
                _("From"): lambda row: display.text(row.previous_status),
                _("To"): lambda row: display.text(row.status),
                _("Brought by"): lambda row: (
                    display.admin_link(self.site, Event, row.event_id) if row.event_id else str(_("an answer"))
                ),
            },
            search,
        )

    def operations(self, account: str, object_id: str) -> Iterable[Section]:
        return self.section(
            _("Operations"),
            Operation.objects.filter(Q(target_id=object_id) | Q(result_id=object_id), account=account)
            .defer("body", "arguments")
            .order_by("-created_at", "-pk"),
            {
                _("Operation"): lambda row: display.admin_link(self.site, Operation, row.pk),
                _("What"): lambda row: display.text(row.operation),
                _("Amount"): lambda row: display.money(row.amount, row.currency),
                _("State"): lambda row: display.status(row.state, OperationState),
                _("Asked by"): lambda row: display.text(row.actor),
                _("Created at"): lambda row: display.moment(row.created_at),
                _("Request ids"): lambda row: display.text(", ".join(map(str, row.request_ids or ()))),
            },
            object_id,
        )

    def refunds(self, rows: QuerySet[Refund], search: str) -> Iterable[Section]:
        return self.section(
            _("Refunds"),
            rows.order_by("-created_at", "-pk"),
            {
                _("Refund"): lambda row: display.admin_link(self.site, Refund, row.pk),
                _("Status"): lambda row: display.status(row.status, Refund.Status),
                _("Amount"): lambda row: display.money(row.amount, row.currency),
                _("Payment"): lambda row: display.admin_link(self.site, Payment, row.payment_id),
                _("Payout"): lambda row: display.admin_link(self.site, Payout, row.payout_id),
                _("Reason"): lambda row: display.text(row.reason),
                _("Created at"): lambda row: display.moment(row.created_at),
            },
            search,
        )

    def payouts(self, rows: QuerySet[Payout], search: str) -> Iterable[Section]:
        return self.section(
            _("Payouts"),
            rows.order_by("-created_at", "-pk"),
            {
                _("Payout"): lambda row: display.admin_link(self.site, Payout, row.pk),
                _("Status"): lambda row: display.status(row.status, Payout.Status),
                _("Amount"): lambda row: display.money(row.amount, row.currency),
                _("Created at"): lambda row: display.moment(row.created_at),
            },
            search,
        )


def about(model: type[Any], obj: Mirror) -> QuerySet[Any]:
    """Rows of the history that name a mirrored object."""
    rows: QuerySet[Any] = model._default_manager.filter(
        account=obj.account, object_kind=obj.kind, object_id=obj.object_id
    )
    return rows
