"""Every URL of the admin, with the permissions that give access to it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.urls import URLPattern, URLResolver, reverse

from payments_integration.models import EventState, Operation, OperationState
from tests.factories import rows

APPS = ("payments_integration", "payments_backoffice")
#: Django's pages that are not about one of our models.
DJANGOS = {
    "index", "login", "logout", "password_change", "password_change_done", "jsi18n", "view_on_site", "", "app_list",
    "autocomplete",
}  # fmt: skip

Row = Callable[[], Any]


@dataclass(frozen=True)
class Route:
    """One URL. Any one of ``permissions`` gives access; without any, not even a superuser has access."""

    name: str
    permissions: tuple[str, ...] = ()
    #: The status codes for users with access, by GET and by POST with a token; 302 redirects with a message.
    get: int = 302
    post: int = 302
    #: The status code for other users.
    refused: int = 403
    #: Makes a row for which the URL is useful; by default a plain row.
    row: Row | None = None
    #: The posted form.
    form: dict[str, Any] | Callable[[Any], dict[str, Any]] = field(default_factory=dict)
    #: Whether the POST sends a request to the provider.
    sends: bool = False
    #: Whether the row's page or the list links to it.
    linked: bool = True

    @property
    def model(self) -> str:
        return self.name.partition("_")[0]

    @property
    def full_name(self) -> str:
        return f"{rows.app_of(self.model)}_{self.name}"

    def filled(self, row: Any) -> dict[str, Any]:
        return self.form(row) if callable(self.form) else self.form


def _row(maker: Callable[..., Any], **fields: Any) -> Row:
    return lambda: maker(**fields)


KEY = {"idempotency_key": "key-of-the-page"}
COMMENT = {**KEY, "comment": "asked the provider"}
_UNKNOWN = _row(rows.operation, state=OperationState.NEEDS_PERSON, may_have_run=True, target_id="pay_1", body=b"{}")
_DUE = _row(rows.operation, state=OperationState.DUE)

#: A complete payout form. Its review reads the balance from the provider.
PAYOUT = {
    "account": "default", "country": "CL", "currency": "CLP", "amount": "1000", "method_code": "cl_bank_transfer",
    "holder_name": "Ana", "document_type": "RUT", "document_number": "12345678-5", "account_number": "000123",
}  # fmt: skip
ENDPOINT = {"account": "default", "url": "https://shop.example/other/", "events": ["payment.succeeded"]}


def waiting() -> Operation:
    """A payout that a job asked for, waiting for approval."""
    body = b'{"amount": 2000, "currency": "CLP"}'
    return rows.operation(
        operation="create_payout", state=OperationState.AWAITING_APPROVAL, amount=2000, currency="CLP", body=body,
        body_digest=hashlib.sha256(body).hexdigest(), actor="the nightly job", request_ids=[],
        sent_to="",
    )  # fmt: skip


def _sees(model: str) -> tuple[str, ...]:
    """As everywhere in the admin, the permission to change includes the one to view."""
    return (f"view_{model}", f"change_{model}")


def _refresh(model: str) -> Route:
    return Route(f"{model}_refresh", _sees(model), form=KEY, sends=True)


#: What the search over everything searches; the dashboard links to it.
SEARCHED = ("payment", "payout", "refund", "depositreference", "operation")

#: What a row of the to-do list can be about.
TO_DO = ("payment", "payout", "refund", "operation")

#: The core's models that the admin's index shows.
LISTED = tuple(name for name in rows.MAKERS if name not in ("note", "statuschange"))

#: Our pages and buttons. Every model has the routes of ``_usual`` too.
OWN = (
    Route("payment_refund", ("refund_payment",), get=200, form={**KEY, "amount": "1", "step": "confirm"}, sends=True),
    Route(
        "payment_refund-selected", ("refund_payment",), get=200, post=200, sends=True, linked=False,
        form=lambda row: {**KEY, "refund": f"{row.pk}:{row.amount}", "step": "confirm"},
    ),
    Route("payment_methods", _sees("payment"), get=200, post=200, form={"account": "default"}, sends=True),
    Route(
        "payment_search", tuple(name for model in SEARCHED for name in _sees(model)), get=200, post=405, linked=False
    ),
    # To see it takes rows that can be in it; to change anything, a permission of its own as well.
    Route(
        "todo_changelist", tuple(name for model in TO_DO for name in _sees(model)), get=200, post=403, linked=False,
        row=_row(rows.payment, status="on_hold"),
    ),
    # It leads to the index of the core's app, which lists these, or status changes to users who see nothing else.
    Route(
        "overview_changelist", tuple(name for model in (*LISTED, "statuschange") for name in _sees(model)), get=302,
        linked=False, row=_row(rows.payment),
    ),
    Route("payment_cancel", ("cancel_payment",), form=KEY, sends=True, row=_row(rows.payment, status="created")),
    Route("payout_add", ("create_payout",), get=200, post=200, form={**KEY, **PAYOUT, "step": "review"}, sends=True),
    Route("payout_cancel", ("cancel_payout",), form=KEY, sends=True),
    Route("balance_refresh-all", _sees("balance"), form=KEY, sends=True),
    Route("webhookendpoint_add", ("manage_webhookendpoint",), get=200, form={**KEY, **ENDPOINT}, sends=True),
    Route("webhookendpoint_remove", ("manage_webhookendpoint",), form=KEY, sends=True),
    Route("webhookendpoint_rotate", ("rotate_webhookendpoint",), form=KEY, sends=True),
    Route("event_replay", ("replay_event",), form=KEY, row=_row(rows.event, state=EventState.PARKED)),
    Route("statuschange_replay", ("replay_event",), form=KEY, row=_row(rows.change, state=EventState.PARKED)),
    Route(
        "operation_approve", ("approve_operation",), row=waiting, sends=True,
        form=lambda row: {**KEY, "digest": row.body_digest},
    ),
    Route("operation_reject", ("approve_operation",), form=COMMENT, row=waiting),
    # Only for the person who asked for it; no permission gives access.
    Route("operation_take-back", form=COMMENT, row=waiting, get=403, post=403),
    Route("operation_look-up", ("change_operation",), form=KEY, row=_UNKNOWN, sends=True),
    Route("operation_send-again", ("change_operation",), form=KEY, row=_DUE, sends=True),
    Route(
        "operation_happened", ("change_operation",), form={**COMMENT, "object_id": "ref_1"}, row=_UNKNOWN, sends=True
    ),
    Route(
        "operation_others", ("close_operation",), form={**COMMENT, "object_ids": "ref_1"}, row=_DUE
    ),
    Route("operation_never-happened", ("close_operation",), form=COMMENT, row=_UNKNOWN),
    Route(
        "reconciliationrun_technical",
        tuple(
            permission
            for model in (
                "event", "operation", "duerefresh", "erasure", "accountstate", "reconciliationrun", "webhookendpoint",
            )
            for permission in _sees(model)
        ),
        get=200, post=405, linked=False,
    ),
    Route(
        "reconciliationrun_run", ("run_reconciliation",), form={"account": "default", "kind": "balances"}, sends=True
    ),
    *(
        Route(f"{model}_add-note", ("add_note",), get=200, form={**KEY, "text": "A note."})
        for model in ("payment", "payout", "refund", "depositreference")
    ),
    *map(_refresh, ("payment", "payout", "refund", "depositreference", "balance", "webhookendpoint")),
)  # fmt: skip


def _usual(model: str) -> Iterator[Route]:
    """The list and Django's pages of a model. Rows cannot be added, changed or deleted by hand."""
    yield Route(f"{model}_changelist", _sees(model), get=200, post=200)
    if model in rows.EXPORTED:
        yield Route(f"{model}_export", _sees(model), get=200, post=405)
    # Offered once there is something to save or to delete.
    if model in rows.EXPORTED:
        yield Route(f"{model}_saved-filters", _sees(model), linked=False)
    yield Route(f"{model}_history", _sees(model), get=200, post=200)
    yield Route(f"{model}_change", _sees(model), get=200, post=403)
    yield Route(f"{model}_add", get=403, post=403)
    yield Route(f"{model}_delete", get=403, post=403)


def _all() -> Iterator[Route]:
    own = {route.name: route for route in OWN}
    for model in rows.MAKERS:
        for route in _usual(model):
            yield own.pop(route.name, route)
    yield from own.values()


ROUTES = {route.name: route for route in _all()}

#: The lists' actions by model, with the permission that each needs in addition to viewing the list.
ACTIONS = {
    ("payment", "refund_selected"): "refund_payment",
    ("event", "replay_selected"): "replay_event",
    ("statuschange", "replay_selected"): "replay_event",
}


@functools.cache
def patterns() -> tuple[tuple[str, URLPattern], ...]:
    """Every URL pattern of the admin, with its full route."""

    def walk(found: list[Any], prefix: str) -> Iterator[tuple[str, URLPattern]]:
        for pattern in found:
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, prefix + str(pattern.pattern))
            else:
                yield prefix + str(pattern.pattern), pattern

    return tuple(walk(admin.site.get_urls(), ""))


def names() -> set[str]:
    """The names of all URLs that belong to the app, without the app's prefix."""
    found = set()
    for route, pattern in patterns():
        name = pattern.name or ""
        if app := next((app for app in APPS if route.startswith(f"{app}/")), ""):
            assert name or route.endswith("<path:object_id>/"), f"{route} has no name"
            found.add(name.removeprefix(f"{app}_"))
        elif not route.startswith(("auth/", "shop/", "payments_")) and name not in DJANGOS:
            found.add(name)
    return found - {""}  # Django's redirect from a row's URL without /change/


def is_for_a_row(route: Route) -> bool:
    """Whether the URL contains the id of a row."""
    pattern = next(found for _, found in patterns() if found.name == route.full_name)
    return "object_id" in pattern.pattern.converters


def address(route: Route, row: Any) -> str:
    """The URL; ``row``: a row of its model."""
    return reverse(f"admin:{route.full_name}", args=[quote(str(row.pk))] if is_for_a_row(route) else [])
