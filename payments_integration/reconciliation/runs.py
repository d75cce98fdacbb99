"""What every pass shares: the account's lease, the record of the pass, and pages that are fetched ahead."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, IntegrityError, router
from django.db.models import Q
from django.utils import timezone

from payments_integration.db.transactions import expired, repeatable, updated
from payments_integration.exceptions import (
    PagingError,
    PaymentsError,
    ProviderError,
    RateLimited,
    recorded_error,
    request_id_of,
)
from payments_integration.models import MIRRORS, AccountState, ReconciliationRun, RunState
from payments_integration.schemas import WireError

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: Called with the run after each page and while it waits, for a progress bar.
Progress = Callable[[ReconciliationRun], None]
#: While a pass runs, its numbers are saved at most this often.
SAVE_SECONDS = 3.0

LEASE = timedelta(seconds=15)
#: How often a pass renews its lease while it waits: well within LEASE.
HEARTBEAT_SECONDS = 4.0

MAX_DRIFT_ENTRIES = 100
MASKED_FIELDS = frozenset(name for model in MIRRORS.values() for name in ("extra", *model.personal))


class LeaseTaken(PaymentsError):
    """Another process is reconciling this account."""


class LeaseLost(PaymentsError):
    """The lease expired while this process was stopped, and another process took it; nothing more is written."""


class DeadlinePassed(PaymentsError):
    """The pass ran into its caller's deadline. Pages that were read are kept; the next pass continues."""


class Lease:
    """The right to move an account's watermark. Every write renews it and fails once it is lost."""

    def __init__(self, account: str, token: str) -> None:
        self.account = account
        self._token = token

    def write(self, **values: Any) -> None:
        """Renew, and set fields of the account's state in the same statement. Raises LeaseLost."""
        values.setdefault("lease_until", timezone.now() + LEASE)
        if not updated(AccountState.objects.filter(pk=self.account, lease_token=self._token), **values):
            raise LeaseLost(f"the lease on account {self.account} was lost")

    def renew(self) -> None:
        self.write()

    def state(self) -> AccountState:
        return AccountState.objects.get(pk=self.account)


@contextmanager
def lease(account: str) -> Iterator[Lease]:
    """Hold the account's lease, so that one event pass runs at a time. Raises LeaseTaken."""
    now, token = timezone.now(), secrets.token_hex(16)
    ensure_state(account)
    free = Q(lease_until=None) | expired("lease_until", LEASE)
    if not updated(AccountState.objects.filter(free, pk=account), lease_token=token, lease_until=now + LEASE):
        raise LeaseTaken(f"account {account} is being reconciled by another process")
    held = Lease(account, token)
    try:
        yield held
    finally:
        updated(AccountState.objects.filter(pk=account, lease_token=token), lease_token="", lease_until=None)


def ensure_state(account: str) -> None:
    """Create the account's row if it does not exist."""
    if AccountState.objects.filter(pk=account).exists():
        return
    create = partial(AccountState.objects.create, account=account)
    with suppress(IntegrityError):  # another process was first
        repeatable(create, using=router.db_for_write(AccountState), lost_races=False)


@contextmanager
def recorded(account: str, kind: str) -> Iterator[ReconciliationRun]:
    """A saved run that is finished however the block ends.

    Errors of the provider and of the database are recorded in ``error`` and not raised, so that the next account and
    the next pass run. Any other error is recorded and raised.
    """
    using = router.db_for_write(ReconciliationRun)
    run = repeatable(partial(ReconciliationRun.objects.create, account=account, kind=kind), using=using)
    run.saved_at = time.monotonic()
    try:
        yield run
    except LeaseTaken:
        run.state = RunState.SKIPPED
    except (PaymentsError, WireError, DatabaseError) as error:
        extra = {"account": account, "request_id": request_id_of(error)}
        logger.warning("Reconciliation (%s) of account %s failed: %s", kind, account, error, extra=extra)
        run.state, run.error = RunState.FAILED, recorded_error(error)
    except BaseException as error:
        run.state, run.error = RunState.FAILED, recorded_error(error)
        raise
    else:
        run.state = RunState.FAILED if run.error else RunState.DONE
    finally:
        run.finished_at = timezone.now()
        repeatable(run.save, using=using)


def report(run: ReconciliationRun, progress: Progress | None) -> None:
    """Show the numbers so far, and save them every few seconds: other processes see what a long pass does."""
    if progress is not None:
        progress(run)
    if time.monotonic() >= run.saved_at + SAVE_SECONDS:
        names = ("window_from", "window_to", "pages", "seen", "recovered", "drifted", "repaired", "drift")
        values = {name: getattr(run, name) for name in names}
        updated(ReconciliationRun.objects.filter(pk=run.pk), **values)
        run.saved_at = time.monotonic()


def check_deadline(run: ReconciliationRun, deadline: float | None) -> None:
    """Raise DeadlinePassed once the deadline (``time.monotonic()``) has passed."""
    if deadline is not None and time.monotonic() >= deadline:
        raise DeadlinePassed(f"stopped after {run.pages} pages; the next pass continues")


def add_drift(run: ReconciliationRun, object_id: str, differences: dict[str, tuple[Any, Any]]) -> None:
    """Count an object that differed, and record each field that did (personal data masked)."""
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
    return value if isinstance(value, str | int | bool | None) else str(value)


def resumed_pages(walk: Callable[[str | None], Iterator[T]], cursor: str | None) -> Iterator[T]:
    """The pages after a saved cursor, or from the start if the provider does not know the cursor any more."""
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
    """Yield from ``pages``, one fetched ahead in a thread; ``heartbeat`` is called in this thread while it waits.

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
