"""Delete what one alias has mirrored, to start afresh with the key of another project.

First the account's state is marked (``AccountState.forgetting_since``). Until the end, calls and passes of the account
are refused and its events wait, as under a key of another project. The state goes last, and the mark with it. So a
process that dies in between leaves an account that waits for the next run, which deletes the rest.

Other processes may see the mark late (``TRUST``), and record operations and write rows until then. So nothing is
deleted before that, open operations are looked for again, and the state goes after a whole round that found no row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from django.db import models, router
from django.db.models import ForeignObjectRel, ProtectedError, RestrictedError
from django.utils import timezone

from payments_integration import conf, projection, sync
from payments_integration.db import keyset
from payments_integration.db.claims import ClaimLost, Held
from payments_integration.db.transactions import WriterPauses, deleted, repeatable
from payments_integration.exceptions import PaymentsError
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    AccountState,
    Mirror,
    Operation,
    WebhookEndpoint,
    deletion_allowed,
)
from payments_integration.reconciliation.objects import SWEEP
from payments_integration.reconciliation.renaming import models_with_account
from payments_integration.reconciliation.runs import HEARTBEAT_SECONDS, PASS, ensured_state, state_of
from payments_integration.signals import mirror_deleted

#: Rows per statement and transaction.
BATCH = 500
#: The claim of a process that died ends within this time.
PATIENCE = PASS.length + timedelta(seconds=5)
#: A process trusts for a minute that an account is not marked (``sync.project_keys``). The rest is for what it
#: began.
TRUST = timedelta(seconds=65)
#: How often the tables are read, each time to the end, before a person must stop what still writes.
ROUNDS = 10
_POLL_SECONDS = 0.5
#: What Django does with another app's row that refers to a deleted one, without deleting that row too.
_HARMLESS: tuple[object, ...] = (models.SET_NULL, models.SET_DEFAULT)
_RELEASE = "delete them, or have them refer to nothing, and try again"

#: Called with a table's name and how many of its rows were deleted so far.
Progress = Callable[[str, int], None]


class ForgetRefused(PaymentsError):
    """The rows of an account stay; the message says why. Nothing was deleted, or nothing more."""


def count_rows(account: str) -> dict[str, int]:
    """Count the rows of each table that ``forget_account`` would delete. Each statement reads ``BATCH`` rows."""
    every: list[type[Any]] = [*_models(), AccountState]
    counts = {_table(model): sum(len(page) for page in _pages(model, account)) for model in every}
    return {table: count for table, count in counts.items() if count}


def refuse_to_forget(account: str, *, force: bool = False) -> None:
    """Raise ForgetRefused if money may be under way, or rows of other apps would be deleted too.

    ``force``: accept open operations, and the live key that filled the mirror. A test project need not finish them.
    """
    if not force and not _was_test(account):
        open_ones = Operation.objects.filter(account=account, state__in=OPEN_OPERATION_STATES)
        ids = list(open_ones.order_by("pk").values_list("pk", flat=True)[:3])
        if ids:
            raise ForgetRefused(
                f"operations of {account} are not finished, such as {', '.join(ids)}: money may be under way, and the "
                "ledger would forget it. Wait until they are resolved (admin: Operations), or add --force"
            )
        if _has_its_key(account):
            raise ForgetRefused(
                f"{account} has the live API_KEY that filled it. Its objects would come back from the provider, "
                "without the operations that keep a call from being sent twice and without the erasures. Configure "
                "the key of the other project first, or add --force"
            )
    for model in _models():
        # The relations that Django follows when it deletes a row, hidden ones included.
        for field in model._meta.get_fields(include_hidden=True):
            if field.auto_created and not field.concrete and (field.one_to_one or field.one_to_many):
                _refuse_relation(field, account)


def forget_account(
    account: str,
    *,
    force: bool = False,
    progress: Progress | None = None,
    waiting: Callable[[timedelta], None] | None = None,
) -> dict[str, int]:
    """Delete every row of the alias ``account``. Returns how many, by table.

    Holds the claims of the account's passes. A transaction deletes at most ``BATCH`` rows of a table. After an
    interruption, the next call deletes the rest. Rows of other accounts stay, even if they name an object of this one.

    ``waiting`` is called before the wait for other processes to see the mark, with its length.

    Raises ForgetRefused if money may be under way or the live key is not replaced yet (not with ``force``), if rows of
    other apps would be deleted too, if a pass runs for longer than ``PATIENCE``, or if other processes go on writing;
    ClaimLost if another process has taken the account over.
    """
    refuse_to_forget(account, force=force)
    held = _claim(account)
    try:
        # The pass that compares objects writes nothing more.
        with SWEEP.seize(state_of(account)) as swept:
            with _marked(account, held, waiting):
                # Look for operations and rows that came after the first look.
                refuse_to_forget(account, force=force)
            counts = _delete(account, held, swept, progress)
    except BaseException:
        with suppress(ClaimLost):
            held.release()
        raise
    _forget_what_is_known()
    return counts


@contextmanager
def _marked(account: str, held: Held, waiting: Callable[[timedelta], None] | None) -> Iterator[None]:
    """Mark the account, and enter when every process has seen the mark. An error removes it.

    Nothing is deleted inside the block. The mark of an interrupted run stays, because rows are already gone.
    """
    before = state_of(account).values_list("forgetting_since", flat=True).get()
    now = timezone.now()
    held.write(forgetting_since=before or now)
    _forget_what_is_known()
    try:
        left = min(TRUST, TRUST - (now - (before or now))).total_seconds()
        if left > 0 and waiting is not None:
            waiting(timedelta(seconds=left))
        while left > 0:
            time.sleep(min(left, HEARTBEAT_SECONDS))
            left -= HEARTBEAT_SECONDS
            held.renew()
        yield
    except BaseException:
        with suppress(ClaimLost):
            held.write(forgetting_since=before)
        raise


def _delete(account: str, held: Held, swept: Held, progress: Progress | None) -> dict[str, int]:
    counts: dict[str, int] = {}

    def deleted_rows(table: str, count: int) -> None:
        held.renew()
        swept.renew()
        if count:
            counts[table] = counts.get(table, 0) + count
            if progress is not None:
                progress(table, counts[table])

    for _ in range(ROUNDS):
        before = sum(counts.values())
        _delete_round(account, deleted_rows)
        if sum(counts.values()) == before:
            break
    else:
        raise ForgetRefused(
            f"other processes still write rows of {account}: stop the site, the workers and the schedule, and try "
            "again"
        )
    # Last, because it has the mark and the claims.
    state = state_of(account).filter(claim_token=held.token)
    counts[_table(AccountState)] = deleted(state)
    if not counts[_table(AccountState)]:
        raise ClaimLost(f"another worker has taken {account}")
    return counts


def _delete_round(account: str, deleted_rows: Progress) -> None:
    """Read every table once, from its first row to its last. A row that is written behind the page remains."""
    for model in _models():
        pauses = WriterPauses(router.db_for_write(model))
        for page in _pages(model, account):
            deleted_rows(_table(model), _delete_page(model, account, page) if page else 0)
            pauses.pause_if_due()


def _delete_page(model: type[Any], account: str, keys: list[Any]) -> int:
    rows = model._default_manager.filter(pk__in=keys, account=account)

    def delete() -> int:
        if issubclass(model, Mirror):
            mirror_deleted(list(rows))
        # The count includes nothing else: a cascade deletes no row of this app, and no other row goes.
        return int(rows.using(router.db_for_write(model)).delete()[1].get(model._meta.label, 0))

    try:
        with deletion_allowed():
            return repeatable(delete, using=router.db_for_write(model), lost_races=False)
    except (ProtectedError, RestrictedError) as error:
        others = error.protected_objects if isinstance(error, ProtectedError) else error.restricted_objects
        labels = ", ".join(sorted({row._meta.label for row in others}))
        raise ForgetRefused(
            f"rows of {labels} refer to rows of {account}, and do not let these be deleted: {_RELEASE}"
        ) from error


def _pages(model: type[Any], account: str) -> Iterator[list[Any]]:
    """Yield pages of the keys of an account's rows.

    Each statement reads the next ``BATCH`` rows of all accounts. With a condition on the account, one could read a
    whole table before it finds a row.
    """
    for page in keyset.pages(model._default_manager.using(router.db_for_write(model)), "account", size=BATCH):
        yield [pk for pk, alias in page if alias == account]


def _models() -> list[type[Any]]:
    """Return the models with an account, endpoints first: without them, deliveries of the old project are refused."""
    found = [model for model in models_with_account() if model is not AccountState]
    return sorted(found, key=lambda model: model is not WebhookEndpoint)


def _claim(account: str) -> Held:
    state = ensured_state(account)
    until = time.monotonic() + PATIENCE.total_seconds()
    while (held := PASS.take(state)) is None:
        if time.monotonic() >= until:
            raise ForgetRefused(f"a pass of {account} is running: stop the workers and the schedule, and try again")
        time.sleep(_POLL_SECONDS)
    return held


def _was_test(account: str) -> bool:
    """Return True if the rows are of a test project.

    If no contact has stored that, the key in the setting says it, unless an open operation has another key's hash.
    """
    stored = state_of(account).values_list("has_test_key", flat=True).first()
    if stored is not None:
        return bool(stored)
    entry = conf.current().ACCOUNTS.get(account)
    if entry is None or not entry.is_test:
        return False
    open_ones = Operation.objects.filter(account=account, state__in=OPEN_OPERATION_STATES)
    return not open_ones.exclude(sent_to=conf.fingerprint(account)).exists()


def _has_its_key(account: str) -> bool:
    """Return True if the key in the setting is the one that filled the mirror."""
    entry = conf.current().ACCOUNTS.get(account)
    return entry is not None and state_of(account).filter(key_hash=entry.key_hash).exists()


def _refuse_relation(relation: ForeignObjectRel, account: str) -> None:
    other: Any = relation.related_model
    # Django leaves the rows, but a constraint of the database keeps what they refer to.
    has_constraint = other._meta.managed and getattr(relation.field, "db_constraint", False)
    is_left = relation.on_delete is models.DO_NOTHING and not has_constraint
    is_ours = other.__module__.startswith("payments_integration.")
    if is_left or is_ours or relation.on_delete in _HARMLESS:
        return
    # No manager: one of the project's may hide rows.
    if models.QuerySet(other).filter(**{f"{relation.field.name}__account": account}).exists():
        raise ForgetRefused(
            f"rows of {other._meta.label} refer to rows of {account} ({relation.field.name}), and would be deleted "
            f"too, or do not let these be deleted: {_RELEASE}"
        )


def _table(model: type[Any]) -> str:
    return str(model._meta.db_table)


def _forget_what_is_known() -> None:
    sync.forget_keys()
    projection.forget_contacts()
    projection.forget_secrets()
