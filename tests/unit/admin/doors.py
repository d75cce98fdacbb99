"""Every address of the admin, and which permissions open it: the table that the walk goes by."""

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
from tests.unit.admin import rows

APP = "payments_integration"
#: Of Django's own pages those that know our models; the others know nothing of them.
DJANGOS = {
    "index", "login", "logout", "password_change", "password_change_done", "jsi18n", "view_on_site", "", "app_list",
    "autocomplete",
}  # fmt: skip

Row = Callable[[], Any]


@dataclass(frozen=True)
class Door:
    """One address. ``opens``: any of these permissions does; with none of them nobody gets in, superusers neither."""

    name: str
    opens: tuple[str, ...] = ()
    #: The status for those who may, by GET and by POST with a token; 302 leads back with a message.
    get: int = 405
    post: int = 302
    #: What others are answered.
    refused: int = 403
    #: A row in a state in which it makes sense; by default a plain one.
    row: Row | None = None
    #: What is posted.
    form: dict[str, Any] | Callable[[Any], dict[str, Any]] = field(default_factory=dict)
    #: Whether what is posted makes a request leave for the provider.
    sends: bool = False
    #: Whether the row's page, or the list, leads there.
    linked: bool = True

    @property
    def model(self) -> str:
        return self.name.partition("_")[0]

    def filled(self, row: Any) -> dict[str, Any]:
        return self.form(row) if callable(self.form) else self.form


def _row(maker: Callable[..., Any], **fields: Any) -> Row:
    return lambda: maker(**fields)


KEY = {"idempotency_key": "key-of-the-page"}
COMMENT = {**KEY, "comment": "asked the provider"}
_UNKNOWN = _row(rows.operation, state=OperationState.NEEDS_PERSON, may_have_run=True, target_id="pay_1", body=b"{}")
_DUE = _row(rows.operation, state=OperationState.DUE)

#: A payout that is complete; before anything is asked, the balance is read.
PAYOUT = {
    "account": "default", "country": "CL", "currency": "CLP", "amount": "1000", "method_code": "cl_bank_transfer",
    "holder_name": "Ana", "document_type": "RUT", "document_number": "12345678-5", "account_number": "000123",
}  # fmt: skip
ENDPOINT = {"account": "default", "url": "https://shop.example/other/", "events": ["payment.succeeded"]}


def waiting() -> Operation:
    """A payout that a job asked for, and that waits for a person."""
    body = b'{"amount": 2000, "currency": "CLP"}'
    return rows.operation(
        operation="create_payout", state=OperationState.AWAITING_APPROVAL, amount=2000, currency="CLP", body=body,
        body_digest=hashlib.sha256(body).hexdigest(), actor="the nightly job", request_ids=[],
        sent_to="",
    )  # fmt: skip


def _sees(model: str) -> tuple[str, ...]:
    """As anywhere in the admin, who may change may see."""
    return (f"view_{model}", f"change_{model}")


def _refresh(model: str) -> Door:
    return Door(f"{model}_refresh", _sees(model), form=KEY, sends=True)


#: What each page and button of ours needs, besides the usual ones of every model.
OWN = (
    Door("payment_refund", ("refund_payment",), get=200, form={**KEY, "amount": "1", "step": "confirm"}, sends=True),
    Door(
        "payment_refund-selected", ("refund_payment",), get=200, post=200, sends=True, linked=False,
        form=lambda row: {**KEY, "refund": f"{row.pk}:{row.amount}", "step": "confirm"},
    ),
    Door("payment_methods", _sees("payment"), get=200, post=200, form={"account": "default"}, sends=True),
    Door("payment_cancel", ("cancel_payment",), form=KEY, sends=True, row=_row(rows.payment, status="created")),
    Door("payout_add", ("create_payout",), get=200, post=200, form={**KEY, **PAYOUT, "step": "review"}, sends=True),
    Door("payout_cancel", ("cancel_payout",), form=KEY, sends=True),
    Door("balance_read-anew", _sees("balance"), form=KEY, sends=True),
    Door("webhookendpoint_add", ("manage_webhookendpoint",), get=200, form={**KEY, **ENDPOINT}, sends=True),
    Door("webhookendpoint_remove", ("manage_webhookendpoint",), form=KEY, sends=True),
    Door("webhookendpoint_rotate", ("rotate_webhookendpoint",), form=KEY, sends=True),
    Door("event_replay", ("replay_event",), form=KEY, row=_row(rows.event, state=EventState.PARKED)),
    Door("statuschange_replay", ("replay_event",), form=KEY, row=_row(rows.change, state=EventState.PARKED)),
    Door(
        "operation_approve", ("approve_operation",), row=waiting, sends=True,
        form=lambda row: {**KEY, "digest": row.body_digest},
    ),
    Door("operation_reject", ("approve_operation",), form=COMMENT, row=waiting),
    # Of whoever asked for it alone: no permission opens it.
    Door("operation_take-back", form=COMMENT, row=waiting, get=403, post=403),
    Door("operation_look-up", ("change_operation",), form=KEY, row=_UNKNOWN, sends=True),
    Door("operation_send-again", ("change_operation",), form=KEY, row=_DUE, sends=True),
    Door(
        "operation_happened", ("change_operation",), form={**COMMENT, "object_id": "ref_1"}, row=_UNKNOWN, sends=True
    ),
    Door("operation_never-happened", ("close_operation",), form=COMMENT, row=_UNKNOWN),
    Door(
        "reconciliationrun_run", ("run_reconciliation",), form={"account": "default", "kind": "balances"}, sends=True
    ),
    *map(_refresh, ("payment", "payout", "refund", "depositreference", "balance", "webhookendpoint")),
)  # fmt: skip


def _usual(model: str) -> Iterator[Door]:
    """The list and Django's own pages of a model. Nobody adds, changes or deletes a row by hand."""
    yield Door(f"{model}_changelist", _sees(model), get=200, post=200)
    yield Door(f"{model}_export", _sees(model), get=200, post=405)
    yield Door(f"{model}_history", _sees(model), get=200, post=200)
    yield Door(f"{model}_change", _sees(model), get=200, post=403)
    yield Door(f"{model}_add", get=403, post=403)
    yield Door(f"{model}_delete", get=403, post=403)


def _all() -> Iterator[Door]:
    own = {door.name: door for door in OWN}
    for model in rows.MAKERS:
        for door in _usual(model):
            yield own.pop(door.name, door)
    yield from own.values()


DOORS = {door.name: door for door in _all()}

#: Actions of the lists, by model, and the permission that each needs besides that to see the list.
ACTIONS = {
    ("payment", "refund_selected"): "refund_payment",
    ("event", "replay_selected"): "replay_event",
    ("statuschange", "replay_selected"): "replay_event",
}


@functools.cache
def patterns() -> tuple[tuple[str, URLPattern], ...]:
    """Every pattern below the admin, with the whole of its route."""

    def walk(found: list[Any], prefix: str) -> Iterator[tuple[str, URLPattern]]:
        for pattern in found:
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, prefix + str(pattern.pattern))
            else:
                yield prefix + str(pattern.pattern), pattern

    return tuple(walk(admin.site.get_urls(), ""))


def names() -> set[str]:
    """The names of all addresses that belong to the app, as the table has them."""
    found = set()
    for route, pattern in patterns():
        name = pattern.name or ""
        if route.startswith(f"{APP}/"):
            assert name or route.endswith("<path:object_id>/"), f"{route} has no name"
            found.add(name.removeprefix(f"{APP}_"))
        elif not route.startswith(("auth/", "shop/")) and name not in DJANGOS:
            found.add(name)
    return found - {""}  # Django's redirect from a row's bare address, which shows nothing


def of_a_row(door: Door) -> bool:
    """Whether its address names a row."""
    pattern = next(found for _, found in patterns() if found.name == f"{APP}_{door.name}")
    return "object_id" in pattern.pattern.converters


def address(door: Door, row: Any) -> str:
    """Where it is; ``row`` is one of its model."""
    return reverse(f"admin:{APP}_{door.name}", args=[quote(str(row.pk))] if of_a_row(door) else [])
