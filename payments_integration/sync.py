"""Read an object from the provider and write it to the mirror. Nothing here can move money."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from payments_integration import projection
from payments_integration.client import Answer, Client, get_client
from payments_integration.enums import Kind
from payments_integration.exceptions import NoAnswer, NotFound
from payments_integration.models import Balance, Refund, WebhookEndpoint

#: A worker waits this many seconds for the rate limit before it puts an object or operation off.
WORKER_WAIT = 3.0

_GET: dict[str, Callable[[Client], Any]] = {
    Kind.PAYMENT: lambda client: client.payments.get,
    Kind.PAYOUT: lambda client: client.payouts.get,
    Kind.REFUND: lambda client: client.refunds.get,
    Kind.DEPOSIT_REFERENCE: lambda client: client.deposit_references.get,
}


def read(kind: str, account: str, object_id: str, *, background: bool = False, wait: float | None = None) -> Any:
    """GET one object and write it; returns its row. NotFound marks the row as gone.

    ``background``: leave the rate limit to interactive calls. ``wait``: seconds to wait for it, if not as usual.
    """
    wait = WORKER_WAIT if wait is None and background else wait
    if kind == Kind.BALANCE:
        return _pick(read_balances(account, background=background, wait=wait), object_id, "currency")
    if kind == Kind.WEBHOOK_ENDPOINT:
        return _pick(read_endpoints(account, background=background, wait=wait), object_id, "pk")
    get = _GET[kind](get_client(account))
    before = projection.snapshot(kind, account, object_id)
    try:
        answer: Answer[Any] = get(object_id, max_wait=wait, background=background)
    except NotFound:
        projection.mark_gone(account, kind, object_id)
        raise
    projection.note_contact(account, answer.answered_at)
    return projection.write_answer(
        account, answer.data, answered_at=answer.answered_at, duration=answer.duration, before=before
    )


def read_balances(account: str, *, background: bool = False, wait: float | None = None) -> list[Balance]:
    """GET /balances into the mirror; returns a row per currency."""
    before = projection.balance_snapshots(account)
    answer = get_client(account).balances.list(max_wait=wait, background=background)
    projection.note_contact(account, answer.answered_at)
    return projection.write_balances(
        account, answer.data, answered_at=answer.answered_at, duration=answer.duration, before=before
    )


def read_endpoints(account: str, *, background: bool = False, wait: float | None = None) -> list[WebhookEndpoint]:
    """GET /webhook-endpoints into the mirror; returns the rows that are listed and marks the others as gone."""
    wait = WORKER_WAIT if wait is None and background else wait
    answer = get_client(account).webhook_endpoints.list(max_wait=wait, background=background)
    projection.note_contact(account, answer.answered_at)
    return projection.write_endpoints(account, answer.data, answered_at=answer.answered_at, duration=answer.duration)


def read_refunds(account: str, payment_id: str) -> list[Refund]:
    """GET /refunds of one payment into the mirror, including refunds made elsewhere; returns their rows, newest first.

    Raises NoAnswer if one of them cannot be read: their sum would then be too small.
    """
    client = get_client(account)
    mirrored = Refund.objects.filter(account=account, payment_id=payment_id).values_list("pk", flat=True)
    before = {pk: projection.snapshot(Kind.REFUND, account, pk) for pk in mirrored}
    rows = []
    for answer in client.refunds.pages(payment_id=payment_id):
        projection.note_contact(account, answer.answered_at)
        if answer.data.unreadable:
            raise NoAnswer(f"a refund of {payment_id} cannot be read: {answer.data.unreadable[0]}")
        rows += [
            projection.write_answer(
                account,
                item,
                answered_at=answer.answered_at,
                duration=answer.duration,
                before=before.get(item.id, projection.ABSENT),
            )
            for item in answer.data.items
            if item.payment_id == payment_id
        ]
    return rows


def _pick(rows: list[Any], object_id: str, name: str) -> Any:
    for row in rows:
        if getattr(row, name) == object_id:
            return row
    raise NotFound("the provider does not list this object", status_code=404, code="resource_not_found")
