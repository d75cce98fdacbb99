"""Read an object from the provider and write it to the mirror. Nothing here can move money."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from payments_integration import conf, projection
from payments_integration.client import Answer, Client, at_most, unguarded_client
from payments_integration.db.transactions import in_transaction
from payments_integration.enums import Kind
from payments_integration.exceptions import (
    AuthenticationFailed,
    NoAnswer,
    NotFound,
    PaymentsError,
    ProviderError,
    RateLimited,
    nothing_sent,
    request_id_of,
)
from payments_integration.models import Balance, Refund, WebhookEndpoint
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

#: A worker waits this many seconds for the rate limit before it postpones an object or operation.
WORKER_WAIT = 3.0
#: Seconds for each GET that compares a new API key with the mirror: a caller waits.
COMPARE_SECONDS = 5.0

_GET: dict[str, Callable[[Client], Any]] = {
    Kind.PAYMENT: lambda client: client.payments.get,
    Kind.PAYOUT: lambda client: client.payouts.get,
    Kind.REFUND: lambda client: client.refunds.get,
    Kind.DEPOSIT_REFERENCE: lambda client: client.deposit_references.get,
}


def get_client(account: str = conf.DEFAULT_ACCOUNT) -> Client:
    """Return the account's client. Raises ImproperlyConfigured without one, or as ``require_same_project``."""
    require_same_project(account)
    return unguarded_client(account)


def require_same_project(account: str) -> None:
    """Raise KeyReplaced if the account's API key is of another project than its mirror. Compare a new key first.

    Raises what a read raises if the provider does not answer the comparison, and NoAnswer inside a transaction, where
    nothing is asked. The caller has then recorded and sent nothing.
    """
    if not projection.waiting_accounts(account):
        return
    failed: PaymentsError | None = None
    if not in_transaction() and projection.uncompared_accounts(account, is_urgent=True):
        try:
            compare_key(account)
        except PaymentsError as error:
            failed = error
    projection.require_same_key(account)
    if projection.waiting_accounts(account):
        raise failed or _not_compared(account)


def compare_keys(account: str | None = None, *, deadline: float | None = None) -> None:
    """Compare the new API keys of the accounts (None: of all). Logs errors of the provider.

    Events and operations of these accounts wait. ``deadline`` is the same as in ``compare_key``.
    """
    for found in projection.uncompared_accounts(account):
        _compare_quietly(found, deadline)


def _compare_quietly(account: str, deadline: float | None) -> None:
    try:
        compare_key(account, deadline=deadline)
    except PaymentsError as error:
        extra = {"account": account, "request_id": request_id_of(error)}
        logger.info("The new API key of account %s could not be compared: %s", account, error, extra=extra)


def compare_key(account: str, *, deadline: float | None = None) -> None:
    """Ask for the newest mirrored objects under the account's new API key, and record if it is of their project.

    One object that the provider knows decides that it is. If it knows none of ``projection.COMPARED``, the key is of
    another project. Fewer objects prove nothing, and the key is accepted, unless it filled the mirror of another
    account: then two keys were swapped. ``deadline`` (``time.monotonic()``): a request is waiting; the next comparison
    of this process asks only for the objects that are left. Raises what a read raises if nothing is decided. An object
    that cannot be read proves nothing, and the others are asked for.
    """
    projection.put_off_comparison(account)
    newest = projection.newest_objects(account)
    if len(newest) < projection.COMPARED and not (newest and projection.is_key_of_another(account)):
        projection.accept_key(account)
        return
    client = unguarded_client(account)
    not_known = projection.objects_not_known(account)
    undecided: PaymentsError | None = None
    for kind, object_id in newest:
        if object_id in not_known:
            continue
        left = COMPARE_SECONDS if deadline is None else min(COMPARE_SECONDS, deadline - time.monotonic())
        try:
            if left <= 0:
                raise _not_compared(account)
            with at_most(left):
                _GET[kind](client)(object_id, max_wait=min(left, WORKER_WAIT))
        except NotFound:
            not_known.add(object_id)
        except PaymentsError as error:
            undecided = error
            if _concerns_every_object(error):
                break
        else:
            projection.accept_key(account)
            return
    else:
        # Each object was asked for. The next comparison asks for all of them again.
        not_known.clear()
    if undecided is None:
        projection.refuse_key(account)
        return
    projection.put_off_comparison(account)
    raise undecided


def is_any_known(account: str, objects: Iterable[tuple[str, str]]) -> bool:
    """Return True if the provider knows one of these objects, each a kind and an id. Raises what a read raises."""
    client = get_client(account)
    for kind, object_id in objects:
        try:
            with at_most(COMPARE_SECONDS):
                _GET[kind](client)(object_id, max_wait=WORKER_WAIT)
        except NotFound:
            continue
        return True
    return False


def _concerns_every_object(error: PaymentsError) -> bool:
    if isinstance(error, ProviderError):
        return isinstance(error, AuthenticationFailed | RateLimited)
    return getattr(error, "status_code", None) is None


def _not_compared(account: str) -> NoAnswer:
    why = f'the new API_KEY of the account "{account}" was not compared with its mirror yet. Try again soon'
    return NoAnswer(nothing_sent(why), was_connected=False)


def read(kind: str, account: str, object_id: str, *, background: bool = False, wait: float | None = None) -> Any:
    """GET one object and write it. Returns its row. NotFound marks the row as gone.

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


class ReadRefunds(NamedTuple):
    """The refunds of a payment as the provider lists them."""

    #: Their rows, newest first.
    rows: list[Refund]
    #: True if one of them may be the result of an operation whose outcome is unknown.
    may_be_ours: bool


def read_refunds(account: str, payment_id: str) -> ReadRefunds:
    """GET /refunds of one payment into the mirror, including refunds made elsewhere.

    A refund that is listed as it is mirrored is not written: the list proves nothing new. Raises NoAnswer if one of
    them cannot be read: their sum would then be too small.
    """
    client = get_client(account)
    known = projection.refunds_of(account, payment_id)
    # Without a row it is unknown if an operation was open.
    may_be_ours = not known or any(is_any_unknown for _, _, is_any_unknown in known.values())
    rows = []
    for answer in client.refunds.pages(payment_id=payment_id):
        projection.note_contact(account, answer.answered_at)
        if answer.data.unreadable:
            raise NoAnswer(f"a refund of {payment_id} cannot be read: {answer.data.unreadable[0]}")
        for item in answer.data.items:
            if item.payment_id != payment_id:
                continue
            row, before, _ = known.get(item.id, (None, projection.ABSENT, False))
            if row is None or row.gone_at is not None or projection.differences(row, item):
                row = projection.write_answer(
                    account, item, answered_at=answer.answered_at, duration=answer.duration, before=before
                )
                may_be_ours = True
            rows.append(row)
    return ReadRefunds(rows, may_be_ours)


def _pick(rows: list[Any], object_id: str, name: str) -> Any:
    for row in rows:
        if getattr(row, name) == object_id:
            return row
    raise NotFound("the provider does not list this object", status_code=404, code="resource_not_found")
