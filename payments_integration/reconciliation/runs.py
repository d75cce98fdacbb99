"""Share what every pass needs: the account's claim, the record of the pass, and pages that are fetched ahead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, IntegrityError, router
from django.db.models import QuerySet
from django.utils import timezone

from payments_integration.attention import name_trouble
from payments_integration.db import fields, statements
from payments_integration.db.claims import ClaimLost, Claims, Held
from payments_integration.db.transactions import repeatable, updated
from payments_integration.exceptions import (
    INTERRUPTIONS,
    PagingError,
    PaymentsError,
    ProviderError,
    RateLimited,
    recorded_error,
    request_id_of,
)
from payments_integration.models import MIRRORS, AccountState, ReconciliationRun, RunState
from payments_integration.runtime import stopping
from payments_integration.runtime.logs import get_logger
from payments_integration.schemas import WireError

logger = get_logger(__name__)
T = TypeVar("T")

#: ``ReconciliationRun.on_progress``.
Progress = Callable[[ReconciliationRun], None]
#: While a pass runs, its numbers are saved at most this often.
SAVE_SECONDS = 3.0

PASS = Claims(timedelta(seconds=15))
#: How often a pass renews its claim while it waits: well within the claim.
HEARTBEAT_SECONDS = 4.0

MAX_DRIFT_ENTRIES = 100
MASKED_FIELDS = frozenset(name for model in MIRRORS.values() for name in ("extra", *model.personal))


class AlreadyRunning(PaymentsError):
    """Another process does this pass of the account."""


class DeadlinePassed(PaymentsError):
    """The pass reached its caller's deadline, or its process was asked to stop.

    Pages that were read are kept; the next pass continues.
    """


def claimed(account: str) -> Held:
    """Claim the account's state: one event pass runs at a time, and only it moves the watermark.

    Raises AlreadyRunning.
    """
    held = PASS.take(ensured_state(account))
    if held is None:
        raise AlreadyRunning(f"account {account} is being reconciled by another process")
    return held


def state_of(account: str) -> QuerySet[AccountState]:
    """Return the account's row, as a queryset."""
    return AccountState.objects.filter(pk=account)


def ensured_state(account: str) -> QuerySet[AccountState]:
    """Return the account's row. Create it if it does not exist."""
    state = state_of(account)
    if not state.exists():
        insert = partial(statements.insert_many, [AccountState(account=account)])
        with suppress(IntegrityError):  # another process was first
            repeatable(insert, using=router.db_for_write(AccountState), lost_races=False)
    return state


@contextmanager
def recorded(
    account: str, kind: str, *, progress: Progress | None = None, deadline: float | None = None
) -> Iterator[ReconciliationRun]:
    """Save a run, and finish it however the block ends.

    Errors of the provider and of the database are recorded in ``error`` and not raised, so that the next account and
    the next pass run. Any other error is recorded and raised. For an error that is not ours, only the class is
    recorded: the text may hold a row, and an erasure does not reach it.
    """
    run = ReconciliationRun(account=account, kind=kind)
    repeatable(partial(statements.insert_many, [run]), using=router.db_for_write(ReconciliationRun))
    run.saved_at, run.deadline, run.on_progress = time.monotonic(), deadline, progress
    try:
        yield run
    except AlreadyRunning:
        run.state = RunState.SKIPPED
    except (PaymentsError, WireError, DatabaseError, ClaimLost) as error:
        if isinstance(error, DatabaseError):
            name_trouble(error, account)
        extra = {"account": account, "request_id": request_id_of(error)}
        logger.warning("Reconciliation (%s) of account %s failed: %s", kind, account, error, extra=extra)
        run.state, run.error = RunState.FAILED, _recorded(error)
    except BaseException as error:
        run.state, run.error = RunState.FAILED, _recorded(error)
        raise
    else:
        run.state = RunState.FAILED if run.error else RunState.DONE
    finally:
        run.finished_at = timezone.now()
        _save(run, *(field.attname for field in run._meta.concrete_fields if not field.primary_key))


def _recorded(error: BaseException) -> str:
    return recorded_error(error) if isinstance(error, PaymentsError | WireError | ClaimLost) else type(error).__name__


def report(run: ReconciliationRun) -> None:
    """Show the numbers so far, and save them every few seconds: other processes see what a long pass does."""
    if run.on_progress is not None:
        run.on_progress(run)
    if time.monotonic() >= run.saved_at + SAVE_SECONDS:
        _save(run, "window_from", "window_to", "pages", "seen", "recovered", "drifted", "repaired", "drift")
        run.saved_at = time.monotonic()


def _save(run: ReconciliationRun, *names: str) -> None:
    updated(ReconciliationRun.objects.filter(pk=run.pk), **{name: getattr(run, name) for name in names})


def check_deadline(run: ReconciliationRun) -> None:
    """Raise DeadlinePassed once the run's deadline has passed, or the process is asked to stop."""
    if stopping.is_over(run.deadline):
        raise DeadlinePassed(f"stopped after {run.pages} pages; the next pass continues")


def each(accounts: Iterable[str], work: Callable[[str], T]) -> list[T]:
    """Return the results of ``work`` for every account. An error is logged, and raised after the last account."""
    results: list[T] = []
    errors: list[Exception] = []
    for account in accounts:
        try:
            results.append(work(account))
        except Exception as error:
            if isinstance(error.__context__, INTERRUPTIONS):
                raise  # a command says what it leaves when it is interrupted
            logger.exception("The work of account %s failed; others go on", account, extra={"account": account})
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def add_drift(run: ReconciliationRun, object_id: str, differences: dict[str, tuple[Any, Any]]) -> None:
    """Count an object that differed, and record each differing field (personal data masked)."""
    run.drifted += 1
    for field, (ours, theirs) in sorted(differences.items()):
        if len(run.drift) >= MAX_DRIFT_ENTRIES:
            return
        masked = field in MASKED_FIELDS
        run.drift.append(
            {
                "object": object_id,
                "field": field,
                "ours": "…" if masked else _plain(ours),
                "theirs": "…" if masked else _plain(theirs),
            }
        )


def _plain(value: Any) -> Any:
    """Return the value as JSON, in characters that the database can store."""
    if isinstance(value, int | bool | None):
        return value
    return fields.writable(str(value), router.db_for_write(ReconciliationRun))


def resumed_pages(walk: Callable[[str | None], Iterator[T]], cursor: str | None) -> Iterator[T]:
    """Yield the pages after a saved cursor, or from the start if the provider no longer knows the cursor."""
    if not cursor:
        yield from walk(None)
        return
    pages = walk(cursor)
    try:
        first = next(pages, None)
    except (PagingError, ProviderError) as error:
        if isinstance(error, ProviderError) and (error.status_code >= 500 or isinstance(error, RateLimited)):
            raise
        yield from walk(None)
        return
    if first is not None:
        yield first
        yield from pages


def fetched_ahead(pages: Iterator[T], heartbeat: Callable[[], None]) -> Iterator[T]:
    """Yield from ``pages``, one fetched ahead in a thread. Calls ``heartbeat`` in this thread while it waits.

    The thread does HTTP only; the database stays with the caller.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="payments-fetch") as pool:
        future = pool.submit(next, pages, None)
        while True:
            while not wait([future], timeout=HEARTBEAT_SECONDS).done:
                heartbeat()
            page = future.result()
            if page is None:
                return
            future = pool.submit(next, pages, None)
            yield page
