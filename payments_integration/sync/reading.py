"""Read an object from the provider and write it to the mirror. Nothing here can move money."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from payments_integration import projection
from payments_integration.client import Answer, at_most
from payments_integration.enums import Kind
from payments_integration.exceptions import NoAnswer, NotFound
from payments_integration.models import Balance, WebhookEndpoint
from payments_integration.sync.project_keys import COMPARE_SECONDS, WORKER_WAIT, get_client


def is_any_known(account: str, objects: Iterable[tuple[str, str]]) -> bool:
    """Return True if the provider knows one of these objects, each a kind and an id. Raises what a read raises."""
    client = get_client(account)
    for kind, object_id in objects:
        try:
            with at_most(COMPARE_SECONDS):
                client.of(kind).get(object_id, max_wait=WORKER_WAIT)
        except NotFound:
            continue
        return True
    return False


def read(kind: str, account: str, object_id: str, *, background: bool = False, wait: float | None = None) -> Any:
    """GET one object and write it. Returns its row. NotFound marks the row as gone.

    ``background``: leave the rate limit to interactive calls. ``wait``: seconds to wait for it, if not as usual.
    """
    wait = WORKER_WAIT if wait is None and background else wait
    if kind == Kind.BALANCE:
        return _pick(read_balances(account, background=background, wait=wait), object_id, "currency")
    if kind == Kind.WEBHOOK_ENDPOINT:
        return _pick(read_endpoints(account, background=background, wait=wait), object_id, "pk")
    client = get_client(account)
    before = projection.snapshot(kind, account, object_id)
    try:
        answer: Answer[Any] = client.of(kind).get(object_id, max_wait=wait, background=background)
    except NotFound:
        projection.mark_gone(account, kind, object_id, before=before)
        raise
    projection.note_contact(account, answer.answered_at)
    return projection.write_answer(
        account, answer.data, answered_at=answer.answered_at, duration=answer.duration, before=before
    )


def read_balances(account: str, *, background: bool = False, wait: float | None = None) -> list[Balance]:
    """GET /balances into the mirror. Returns a row per currency."""
    before = projection.balance_snapshots(account)
    answer = get_client(account).balances.list(max_wait=wait, background=background)
    projection.note_contact(account, answer.answered_at)
    return projection.write_balances(
        account, answer.data, answered_at=answer.answered_at, duration=answer.duration, before=before
    )


def read_endpoints(account: str, *, background: bool = False, wait: float | None = None) -> list[WebhookEndpoint]:
    """GET /webhook-endpoints into the mirror. Returns the rows that are listed and marks the others as gone."""
    wait = WORKER_WAIT if wait is None and background else wait
    answer = get_client(account).webhook_endpoints.list(max_wait=wait, background=background)
    projection.note_contact(account, answer.answered_at)
    return projection.write_endpoints(account, answer.data, answered_at=answer.answered_at, duration=answer.duration)


def read_refunds(account: str, payment_id: str) -> bool:
    """GET /refunds of one payment into the mirror, including refunds made elsewhere.

    Returns True if one of them may be the result of an operation whose outcome is unknown.

    A refund that is listed as it is mirrored is not written: the list proves nothing new. Raises NoAnswer if one of
    them cannot be read: their sum would then be too small.
    """
    client = get_client(account)
    known = projection.refunds_of(account, payment_id)
    # Without a row it is unknown if an operation was open.
    may_be_ours = not known or any(is_any_unknown for _, _, is_any_unknown in known.values())
    for answer in client.refunds.pages(payment_id=payment_id):
        projection.note_contact(account, answer.answered_at)
        if answer.data.unreadable:
            raise NoAnswer(f"a refund of {payment_id} cannot be read: {answer.data.unreadable[0]}")
        for item in answer.data.items:
            if item.payment_id != payment_id:
                continue
            row, before, _ = known.get(item.id, (None, projection.ABSENT, False))
            if row is None or row.gone_at is not None or projection.differences(row, item):
                projection.write_answer(
                    account, item, answered_at=answer.answered_at, duration=answer.duration, before=before
                )
                may_be_ours = True
    return may_be_ours


def _pick(rows: list[Any], object_id: str, name: str) -> Any:
    for row in rows:
        if getattr(row, name) == object_id:
            return row
    raise NotFound("the provider does not list this object", status_code=404, code="resource_not_found")
