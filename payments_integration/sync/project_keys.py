"""Keep an account with the project whose key filled its mirror.

Two projects know different objects. With a key of another project, test payments would count for orders that are paid
with real money, and objects that the new project does not know would seem to be gone. A key may also be replaced
within its project, so another key alone proves nothing. A key belongs to another project if one of the two keys is a
test key and the other is not (spec, "Authentication"), or if the provider knows none of the newest objects under it:
of ten, or of any number if the key filled the mirror of another account.

``AccountState`` stores the hash of the key that filled the mirror, and the hash of a key that was refused. Each
process compares the key of its own settings with them. So during a deployment, processes with the old key go on while
processes with the new key are refused. A process reads the state once a minute, for all accounts together. The
provider is asked once for each new key. Until that decision, nothing is sent or applied: if an object of
another project came into the mirror, the new key would know it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from django.core.signals import setting_changed
from django.db import router
from django.db.models import Q
from django.utils import timezone

from payments_integration import conf, projection
from payments_integration.attention import ACTIONS, call_attention
from payments_integration.client import Client, at_most, unguarded_client
from payments_integration.db.transactions import in_transaction, repeatable, updated
from payments_integration.exceptions import (
    AuthenticationFailed,
    KeyReplaced,
    NoAnswer,
    NotFound,
    PaymentsError,
    ProviderError,
    RateLimited,
    nothing_sent,
    request_id_of,
)
from payments_integration.models import AccountState, Payment, Payout, Refund
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import Reason

logger = get_logger(__name__)

#: This many of the newest objects must be unknown before a key is refused.
COMPARED = 10
#: One call for attention per account and day, because every call and pass is refused.
REPORT_EVERY = timedelta(days=1)
#: A key that was refused because of the objects is compared again after this time: the provider may have had a fault.
COMPARE_AGAIN = timedelta(minutes=10)
#: How long a process trusts what it knows of a key.
_TRUST_SECONDS = 60.0
_DISTRUST_SECONDS = 5.0
#: After this many seconds, a comparison that the provider did not answer is repeated for what waits for it.
_PUT_OFF_SECONDS = 5.0
#: Seconds for each GET that compares a new API key with the mirror: a caller waits.
COMPARE_SECONDS = 5.0
#: A worker waits this many seconds for the rate limit before it postpones an object or operation.
WORKER_WAIT = 3.0


class _Standing(StrEnum):
    RIGHT = "right"
    #: Another key of the same kind. The objects decide, and until then everything waits.
    NEW = "new"
    #: A test key in place of a live key, or the reverse.
    OTHER_KIND = "other_kind"
    #: The provider knows none of the newest objects.
    UNKNOWN_OBJECTS = "unknown_objects"
    #: ``payments_forget`` began and is not complete.
    FORGOTTEN = "forgotten"


#: By account, with its key: how long its standing is trusted (monotonic clock), and when it was refused.
_known: dict[conf.Account, tuple[float, _Standing, datetime | None]] = {}
#: When another comparison of a key may begin. A call that needs one does not wait.
_put_off: dict[tuple[str, str], float] = {}
#: The objects that the provider did not know under a key, in comparisons that were cut short. A verdict ends it.
_not_known: dict[tuple[str, str], set[str]] = {}


def get_client(account: str = conf.DEFAULT_ACCOUNT) -> Client:
    """Return the account's client. Raises ImproperlyConfigured without one, or as ``require_same_project``."""
    require_same_project(account)
    return unguarded_client(account)


def require_same_project(account: str) -> None:
    """Raise KeyReplaced if the account's API key is of another project than its mirror. Compare a new key first.

    Raises what a read raises if the provider does not answer the comparison, and NoAnswer inside a transaction, where
    nothing is asked. The caller has then recorded and sent nothing.
    """
    if not waiting_accounts(account):
        return
    failed: PaymentsError | None = None
    if not in_transaction() and uncompared_accounts(account, is_urgent=True):
        try:
            compare_key(account)
        except PaymentsError as error:
            failed = error
    require_same_key(account)
    if waiting_accounts(account):
        raise failed or _not_compared(account)


def compare_keys(only: str | None = None, *, deadline: float | None = None) -> None:
    """Compare the new API keys of the accounts, or of ``only`` one. Logs errors of the provider.

    Events and operations of these accounts wait. ``deadline`` is the same as in ``compare_key``.
    """
    for account in uncompared_accounts(only):
        try:
            compare_key(account, deadline=deadline)
        except PaymentsError as error:
            extra = {"account": account, "request_id": request_id_of(error)}
            logger.info("The new API key of account %s could not be compared: %s", account, error, extra=extra)


def compare_key(account: str, *, deadline: float | None = None) -> None:
    """Ask for the newest mirrored objects under the account's new API key, and record if it is of their project.

    One object that the provider knows decides that it is. If it knows none of ``COMPARED``, the key is of another
    project. Fewer objects prove nothing, and the key is accepted, unless it filled the mirror of another account: then
    two keys were swapped. ``deadline`` (``time.monotonic()``): a request is waiting; the next comparison of this
    process asks only for the objects that are left. Raises what a read raises if nothing is decided. An object that
    cannot be read proves nothing, and the others are asked for.
    """
    _put_off_comparison(account)
    newest = newest_objects(account)
    others = AccountState.objects.filter(key_hash=conf.key_hash(account)).exclude(pk=account)
    if len(newest) < COMPARED and not (newest and others.exists()):
        _accept_key(account)
        return
    client = unguarded_client(account)
    not_known = _not_known.setdefault((account, conf.key_hash(account)), set())
    undecided: PaymentsError | None = None
    for kind, object_id in newest:
        if object_id in not_known:
            continue
        left = COMPARE_SECONDS if deadline is None else min(COMPARE_SECONDS, deadline - time.monotonic())
        try:
            if left <= 0:
                raise _not_compared(account)
            with at_most(left):
                client.of(kind).get(object_id, max_wait=min(left, WORKER_WAIT))
        except NotFound:
            not_known.add(object_id)
        except PaymentsError as error:
            undecided = error
            if _concerns_every_object(error):
                break
        else:
            _accept_key(account)
            return
    else:
        # Each object was asked for. The next comparison asks for all of them again.
        not_known.clear()
    if undecided is None:
        _write(account, refused_key_hash=conf.key_hash(account), refused_key_at=timezone.now())
        return
    _put_off_comparison(account)
    raise undecided


def _concerns_every_object(error: PaymentsError) -> bool:
    if isinstance(error, ProviderError):
        return isinstance(error, AuthenticationFailed | RateLimited)
    return getattr(error, "status_code", None) is None


def _not_compared(account: str) -> NoAnswer:
    why = f'the new API_KEY of the account "{account}" was not compared with its mirror yet. Try again soon'
    return NoAnswer(nothing_sent(why), was_connected=False)


def require_same_key(account: str) -> None:
    """Raise KeyReplaced, and call attention, if the account's key is of another project than its mirror.

    A new key passes: what is recorded under it is sent after the comparison. If the key passes, takes at most one
    statement, which a process repeats after a minute. Does nothing in Django's test environment, where each test has
    its own keys.
    """
    standing = _standings({account: conf.account(account)})[account][0]
    if standing in (_Standing.RIGHT, _Standing.NEW):
        return
    message = _message(account, standing)
    repeatable(partial(_report_replaced, account, message), using=router.db_for_write(AccountState))
    raise KeyReplaced(f"{message}. Nothing was sent. To do: {ACTIONS[Reason.KEY_REPLACED]}.", was_connected=False)


def _report_replaced(account: str, message: str) -> None:
    # In one transaction: a death between the two writes would lose the call for attention for a day.
    now = timezone.now()
    state = AccountState.objects.filter(pk=account)
    is_due = Q(key_replaced_at=None) | Q(key_replaced_at__lt=now - REPORT_EVERY)
    if state.filter(is_due).update(key_replaced_at=now):
        call_attention(AccountState(pk=account), Reason.KEY_REPLACED, message)


def waiting_accounts(account: str | None = None) -> list[str]:
    """Return the accounts (of all, if None is given) whose events wait.

    Their key is of another project, or it is new and was not compared yet.
    """
    known = conf.current().ACCOUNTS
    asked = known if account is None else {account: known[account]} if account in known else {}
    return [alias for alias, (standing, _) in _standings(asked).items() if standing is not _Standing.RIGHT]


def uncompared_accounts(account: str | None = None, *, is_urgent: bool = False) -> list[str]:
    """Return the accounts (of all, if None is given) whose key must be compared with the newest objects.

    ``is_urgent``: include a new key whose comparison just began or failed.
    """
    asked = conf.current().ACCOUNTS if account is None else {account: conf.account(account)}
    again = timezone.now() - COMPARE_AGAIN
    found = []
    for alias, (standing, refused_at) in _standings(asked).items():
        is_new = standing is _Standing.NEW
        is_due = is_new or (standing is _Standing.UNKNOWN_OBJECTS and (refused_at is None or refused_at < again))
        if not is_due:
            continue
        is_put_off = time.monotonic() < _put_off.get((alias, asked[alias].key_hash), 0.0)
        if not is_put_off or (is_new and is_urgent):
            found.append(alias)
    return found


def newest_objects(account: str, *, with_gone: bool = False) -> list[tuple[str, str]]:
    """Return (kind, id) of the newest objects, at most ``COMPARED``.

    ``with_gone``: include objects that the provider did not know when last asked for them.
    """
    which = Q(account=account) if with_gone else Q(account=account, gone_at=None)
    found = [
        (created_at, str(model.kind), pk)
        for model in (Payment, Payout, Refund)
        for pk, created_at in model._default_manager.filter(which)
        .order_by("-created_at", "-pk")
        .values_list("pk", "created_at")[:COMPARED]
    ]
    return [(kind, pk) for _, kind, pk in sorted(found, reverse=True)[:COMPARED]]


def _accept_key(account: str) -> None:
    """Record that the key is of the project whose objects are mirrored."""
    _write(account, **projection.key_values(account), refused_key_hash="", refused_key_at=None)


def _put_off_comparison(account: str) -> None:
    """Begin no other comparison at once in this process: one begins, or the provider did not answer it."""
    _put_off[account, conf.key_hash(account)] = time.monotonic() + _PUT_OFF_SECONDS


def _write(account: str, **values: Any) -> None:
    updated(AccountState.objects.filter(pk=account), **values)
    _known.pop(conf.account(account), None)
    _not_known.pop((account, conf.key_hash(account)), None)


def _standings(accounts: Mapping[str, conf.Account]) -> dict[str, tuple[_Standing, datetime | None]]:
    """Return the standing of each account's key, and when it was refused. One statement at most."""
    now = time.monotonic()
    found: dict[str, tuple[_Standing, datetime | None]] = {}
    unread: list[str] = []
    for alias, entry in accounts.items():
        until, standing, refused_at = _known.get(entry, (0.0, _Standing.RIGHT, None))
        found[alias] = standing, refused_at
        if now >= until:
            unread.append(alias)
    # In Django's test environment every key is right: each test has its own.
    if not unread or conf.in_test_environment():
        return found
    states = AccountState.objects.in_bulk(unread)
    for alias in unread:
        state = states.get(alias)
        standing = _Standing.RIGHT if state is None else _standing(state, accounts[alias])
        refused_at = None if state is None else state.refused_key_at
        trusted = _TRUST_SECONDS if standing is _Standing.RIGHT else _DISTRUST_SECONDS
        _known[accounts[alias]] = now + trusted, standing, refused_at
        found[alias] = standing, refused_at
    return found


def _standing(state: AccountState, entry: conf.Account) -> _Standing:
    if state.forgetting_since is not None:
        return _Standing.FORGOTTEN
    if state.has_test_key is None:
        return _Standing.RIGHT
    if bool(state.has_test_key) != entry.is_test:
        return _Standing.OTHER_KIND
    if state.key_hash in ("", entry.key_hash):
        return _Standing.RIGHT
    return _Standing.UNKNOWN_OBJECTS if state.refused_key_hash == entry.key_hash else _Standing.NEW


def replaced_keys(accounts: list[str]) -> dict[str, str]:
    """Return the accounts whose key is of another project, and what is wrong with each. One statement."""
    # Not whole rows: ``migrate`` checks this before it adds the columns of a newer version.
    names = ("account", "has_test_key", "key_hash", "refused_key_hash", "forgetting_since")
    states = AccountState.objects.filter(pk__in=accounts).only(*names).order_by("pk")
    return {state.account: why for state in states if (why := replaced_key(state))}


def replaced_key(state: AccountState) -> str:
    """Return why the key in the setting is of another project than this account's mirror; "" if it is not."""
    standing = _standing(state, conf.account(state.account))
    return "" if standing in (_Standing.RIGHT, _Standing.NEW) else _message(state.account, standing)


def _message(account: str, standing: _Standing) -> str:
    if standing is _Standing.FORGOTTEN:
        return f'payments_forget has begun to delete the rows of the account "{account}", and is not complete'
    if standing is _Standing.UNKNOWN_OBJECTS:
        return (
            f'The API_KEY of the account "{account}" is of another project than its mirror: under it, the provider '
            f"knows none of the {COMPARED} newest objects"
        )
    before, now = ("a live key", "a test key") if conf.account(account).is_test else ("a test key", "a live key")
    return f'The mirror of the account "{account}" was filled with {before}, and its API_KEY is {now} now'


def forget_keys(**_: object) -> None:
    """Clear what this process knows of keys."""
    _known.clear()
    _put_off.clear()
    _not_known.clear()


setting_changed.connect(forget_keys, dispatch_uid="payments_integration.forget_keys")
