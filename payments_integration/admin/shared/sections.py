"""Build the sections below the fields of a row's page, such as a table of status changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar, cast
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.shared import display, masking
from payments_integration.admin.shared.buttons import may, may_view
from payments_integration.models import Event, EventState, Mirror, Operation, OperationState, Refund, StatusChange
from payments_integration.validation.text import StrOrPromise

#: Styles of tables, tiles and lists of problems.
STYLES = ("payments_integration/dashboard.css",)

#: The maximum of rows in a table, newest first. The list has the others.
ROWS = 25

Cell = Callable[[Any], str]
T = TypeVar("T")


def about(model: type[Any], obj: Mirror) -> QuerySet[Any]:
    """Return the rows of ``model`` about a mirrored object."""
    rows: QuerySet[Any] = model._default_manager.filter(
        account=obj.account, object_kind=obj.kind, object_id=obj.object_id
    )
    return rows


def once(row: Any, name: str, read: Callable[[], T]) -> T:
    """Return the result of ``read``, which is kept on the row under ``name``. The row lives for one request."""
    kept: dict[str, Any] = row.__dict__
    if name not in kept:
        kept[name] = read()
    return cast("T", kept[name])


class Section:
    """Something below the fields. Its template receives it as ``section``."""

    __slots__ = ()

    template: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Table(Section):
    template: ClassVar[str] = "admin/payments_integration/includes/section.html"

    title: StrOrPromise
    columns: tuple[StrOrPromise, ...]
    rows: list[tuple[str, ...]]
    #: The URL of the list with all rows; empty if all are shown.
    more: str
    #: An explanation above the table.
    note: StrOrPromise = ""
    #: Only its title is shown until the user opens it.
    is_folded: bool = False


class Page(NamedTuple):
    """The page that is shown: its site and its request."""

    site: AdminSite
    request: HttpRequest

    def may_view(self, model: type[Model]) -> bool:
        return may_view(self.site, self.request, model)

    def section(
        self,
        title: StrOrPromise,
        rows: QuerySet[Any],
        columns: dict[StrOrPromise, Cell],
        search: str,
        *,
        note: StrOrPromise = "",
        is_folded: bool = False,
        hides_none: bool = False,
    ) -> Iterable[Section]:
        """Yield one table; without its rows if the user may not see them. ``search`` finds all of them in the list."""
        model = rows.model
        if not self.may_view(model):
            yield from self.not_visible(model, title)
            return
        found = list(rows[: ROWS + 1])
        if hides_none and not found:
            return
        more = ""
        if len(found) > ROWS:
            more = f"{display.list_url(self.site, model)}?{urlencode({'q': search})}"
        cells = [tuple(cell(row) for cell in columns.values()) for row in found[:ROWS]]
        yield Table(title, tuple(columns), cells, more, note, is_folded)

    def not_visible(self, model: type[Model], title: StrOrPromise) -> Iterable[Section]:
        """Yield the section of rows that the user may not see; none if the site has no pages of such rows."""
        if self.site.is_registered(model):
            yield Table(title, (), [], "", display.NOT_VISIBLE)

    def personal(self, value: str | None) -> str:
        """Return a text, masked if the user may not see personal data."""
        return display.text(masking.MASK if value and not may(self.request, "view_personal_data") else value)

    def changes(self, rows: QuerySet[StatusChange], search: str) -> Iterable[Section]:
        return self.section(
            _("Status changes"),
            rows,
            {
                _("At"): lambda row: display.admin_link(self.site, StatusChange, row.pk, display.moment(row.at)),
                _("From"): lambda row: display.status_word(row.object_kind, row.previous_status),
                _("To"): lambda row: display.status_word(row.object_kind, row.status),
                _("Brought by"): lambda row: (
                    display.admin_link(self.site, Event, row.event_id) if row.event_id else str(_("an answer"))
                ),
            },
            search,
        )

    def events(self, rows: QuerySet[Event], search: str) -> Iterable[Section]:
        return self.section(
            _("Events"),
            rows.only("type", "state", "created_at"),
            {
                _("Created at"): lambda row: display.moment(row.created_at),
                _("Event"): lambda row: display.admin_link(self.site, Event, row.pk, display.event_name(row.type)),
                _("State"): lambda row: display.status(row.state, EventState),
            },
            search,
            hides_none=True,
        )

    def operations(self, obj: Mirror) -> Iterable[Section]:
        """Yield the operations on the object and the one that created it."""
        fields = (
            "operation", "state", "amount", "currency", "actor", "actor_id", "result_kind", "result_id", "created_at",
        )  # fmt: skip
        rows = Operation.objects.filter(account=obj.account).only("account", *fields)
        # Uses a union, because each half has its own index. With OR, a database may scan all operations by time.
        both = rows.filter(target_id=obj.object_id).union(rows.filter(result_id=obj.object_id))
        return self.section(
            _("Operations"),
            both.order_by("-created_at"),
            {
                _("Created at"): lambda row: display.moment(row.created_at),
                _("Operation"): lambda row: display.admin_link(
                    self.site, Operation, row.pk, display.operation_name(row.operation)
                ),
                _("Amount"): lambda row: display.money(row.amount, row.currency),
                # The provider accepted a done request. The status of the result says what became of it.
                _("State"): lambda row: display.status(
                    row.state, OperationState, tone="quiet" if row.state == OperationState.DONE else ""
                ),
                _("Result"): lambda row: display.object_link(self.site, row.account, row.result_kind, row.result_id),
                _("Asked by"): lambda row: display.requester(self.site, row),
            },
            obj.object_id,
            hides_none=True,
        )

    def refunds(self, rows: QuerySet[Refund], search: str) -> Iterable[Section]:
        return self.section(
            _("Refunds"),
            rows.order_by("-created_at", "-pk"),
            {
                _("Created at"): lambda row: display.moment(row.created_at),
                _("Refund"): lambda row: display.admin_link(self.site, Refund, row.pk),
                _("Amount"): lambda row: display.money(row.amount, row.currency),
                _("Status"): lambda row: display.status(row.status, Refund.Status),
            },
            search,
            hides_none=True,
        )
