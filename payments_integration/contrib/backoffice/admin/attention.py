"""Show the operations that need attention above the list of operations.

A person must decide them, they wait for approval, or their outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.models.operations import OperationAdmin
from payments_integration.admin.shared import columns, display
from payments_integration.models import Operation, OperationState
from payments_integration.validation.text import StrOrPromise

#: The states that need attention, most urgent first, with the label of the link to all such operations.
ATTENTION_STATES: dict[OperationState, StrOrPromise] = {
    OperationState.NEEDS_PERSON: _("All that a person must decide"),
    OperationState.AWAITING_APPROVAL: _("All that wait for approval"),
    OperationState.UNKNOWN: _("All whose outcome is not known yet"),
}
#: The number of operations shown per state. The oldest ones are shown.
ATTENTION_ROWS = 5


class Attention(NamedTuple):
    """The operations that need attention, as a table."""

    columns: tuple[StrOrPromise, ...]
    rows: list[tuple[str, ...]]
    #: Label and URL of the list of each state.
    lists: list[tuple[StrOrPromise, str]]


def attention(model_admin: OperationAdmin, request: HttpRequest) -> Attention:
    """Return the operations that need attention, found with one short index read per state."""
    found: list[Operation] = []
    for state in ATTENTION_STATES:
        oldest = Operation.objects.filter(state=state).order_by("created_at", "pk")
        found += oldest.defer(*model_admin.list_defer)[:ATTENTION_ROWS]
    person: Callable[[Operation], str] = model_admin.person_shown
    if not model_admin.sees_personal(request):
        person = columns.masked(model_admin, "person_shown")
    seen = model_admin.seen(request)
    cells: dict[StrOrPromise, Callable[[Operation], str]] = {
        _("Amount"): lambda row: display.money(row.amount, row.currency),
        _("Asked for"): lambda row: display.admin_link(
            model_admin.admin_site, Operation, row.pk, model_admin.operation_shown(row)
        ),
        _("Recipient or payer"): person,
        _("Reference"): model_admin.reference_shown,
        _("State"): lambda row: display.status(row.state, OperationState),
        _("About"): seen.objects_shown,
        _("Asked by"): lambda row: display.requester(seen.admin_site, row),
        _("Created at"): lambda row: display.moment(row.created_at),
    }
    rows = [tuple(cell(operation) for cell in cells.values()) for operation in found]
    url = display.list_url(model_admin.admin_site, Operation)
    lists = [(label, f"{url}?{urlencode({'state': state.value})}") for state, label in ATTENTION_STATES.items()]
    return Attention(tuple(cells), rows, lists)
