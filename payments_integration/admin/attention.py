"""Operations that a person should look at, above the list of all: to be decided, waiting for approval, or unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.utils.translation import gettext_lazy as _

from payments_integration.admin import display
from payments_integration.admin.operation_names import in_words
from payments_integration.models import Operation, OperationState

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: The most pressing first, and what the list of all of them is called.
STATES: dict[OperationState, StrOrPromise] = {
    OperationState.NEEDS_PERSON: _("All that a person must decide"),
    OperationState.AWAITING_APPROVAL: _("All that wait for approval"),
    OperationState.UNKNOWN: _("All whose outcome is not known yet"),
}
#: Shown of each state; the oldest, because they have waited longest.
ROWS = 5

COLUMNS: tuple[StrOrPromise, ...] = (
    _("Operation"), _("Asked for"), _("State"), _("Amount"), _("About"), _("Asked by"), _("Created at"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attention:
    columns: tuple[StrOrPromise, ...]
    rows: list[tuple[str, ...]]
    #: Label and address of the lists of each state.
    lists: list[tuple[StrOrPromise, str]]


def of(site: AdminSite, about: Callable[[Operation], str]) -> Attention:
    """One short read of the index on the states for each. ``about``: the objects that an operation is about."""
    found = [operation for state in STATES for operation in _oldest(state)]
    url = display.list_url(site, Operation)
    lists = [(label, f"{url}?{urlencode({'state': state.value})}") for state, label in STATES.items()]
    return Attention(COLUMNS, [_row(site, operation, about) for operation in found], lists)


def _oldest(state: OperationState) -> list[Operation]:
    rows = Operation.objects.filter(state=state).defer("arguments", "body", "error", "note", "request_ids")
    return list(rows.order_by("created_at", "pk")[:ROWS])


def _row(site: AdminSite, operation: Operation, about: Callable[[Operation], str]) -> tuple[str, ...]:
    return (
        display.admin_link(site, Operation, operation.pk),
        in_words(operation.operation),
        display.status(operation.state, OperationState),
        display.money(operation.amount, operation.currency),
        about(operation),
        display.text(operation.actor),
        display.moment(operation.created_at),
    )
