"""Delete old raw bodies, events and records of passes.

Only events that are done and older than their retention go, never one that is pending, held, undispatched, parked or
quarantined. Changes of status and of balances stay, because people look them up. Operations and erasures stay, because
every idempotency key and every erased object must be known for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError, router
from django.db.models import Exists, ForeignObjectRel, OuterRef, QuerySet
from django.utils import timezone

from payments_integration import conf, erasure
from payments_integration.db import keyset
from payments_integration.db.indexes import has_partial_indexes
from payments_integration.db.statements import filter_account
from payments_integration.db.transactions import WriterPauses, deleted, updated
from payments_integration.models import Event, EventState, ReconciliationRun
from payments_integration.reconciliation.renaming import stored_accounts
from payments_integration.reconciliation.runs import each

#: No pass lasts this long: one that is still recorded as running has died.
RUN_DAYS = 90
#: Rows per transaction.
BATCH = 500


@dataclass(frozen=True, slots=True)
class _Job:
    """Rows to prune, in the order of ``when``. ``act`` handles a batch; its query checks again that they may go."""

    rows: QuerySet[Any]
    when: str
    act: Callable[[QuerySet[Any]], int]


def prune(
    account: str | None = None,
    *,
    dry_run: bool = False,
    progress: Callable[[str, int], object] = lambda name, count: None,
) -> dict[str, int]:
    """Blank old raw bodies, delete old events and records of passes, finish erasures. Returns counts by name.

    Can be interrupted, repeated and run concurrently. ``dry_run``: only count. ``progress`` gets the name and the
    count after each batch.
    """
    jobs = _jobs(account)
    if dry_run:
        # Count as the pruning reads: for a COUNT the planner, which expects many rows, would read the whole table.
        return {name: sum(map(len, _pages(job.rows, job.when))) for name, job in jobs.items()}
    counts: dict[str, int] = {}
    failed: DatabaseError | None = None
    for name, job in jobs.items():
        try:
            counts[name] = _prune(job, partial(progress, name))
        except DatabaseError as error:  # the other jobs, and the erasures, do not wait for it
            failed = error
    counts["erased"] = erasure.finish(account, thorough=True).done.total()
    if failed is not None:
        raise failed
    return counts


def prune_daily(account: str) -> None:
    """Prune an account. With the first account of the setting, also accounts that the setting no longer has.

    Nothing else prunes them, so they follow the daily sweep of one account.
    """
    known = list(conf.current().ACCOUNTS)
    removed = [alias for alias in stored_accounts() if alias not in known] if known[:1] == [account] else []
    each([account, *removed], prune)


def _jobs(account: str | None) -> dict[str, _Job]:
    settings = conf.current()
    runs = filter_account(ReconciliationRun.objects.all(), account)
    done = filter_account(Event.objects.filter(state=EventState.DONE), account)
    return {
        # The retention of an event that was found late begins when it was found.
        "bodies": _Job(
            done.filter(
                created_at__lt=_before(settings.EVENT_BODY_DAYS),
                received_at__lt=_before(settings.EVENT_BODY_DAYS),
                body__isnull=False,
            ),
            # In the order of an index that holds only these events; without it, of the index by state.
            "received_at" if has_partial_indexes(router.db_for_write(Event)) else "created_at",
            lambda rows: updated(rows, body=None),
        ),
        # The row is how a second delivery is recognised, so it stays while the provider may still deliver the event.
        "events": _Job(
            done.filter(
                *_unless_referred_to(),
                created_at__lt=_before(settings.EVENT_DAYS),
                received_at__lt=_before(conf.MIN_EVENT_DAYS),
            ),
            "created_at",
            deleted,
        ),
        "runs": _Job(runs.filter(started_at__lt=_before(RUN_DAYS)), "started_at", deleted),
    }


def _prune(job: _Job, progress: Callable[[int], object]) -> int:
    pauses = WriterPauses(router.db_for_write(job.rows.model))
    done = 0
    for keys in _pages(job.rows, job.when):
        done += job.act(job.rows.filter(pk__in=keys))
        progress(done)
        pauses.pause_if_due()
    return done


def _unless_referred_to() -> Iterator[Any]:
    """Leave out events to which a row of another app refers: the database would refuse to delete the whole batch."""
    for relation in Event._meta.get_fields(include_hidden=True):
        if isinstance(relation, ForeignObjectRel) and getattr(relation.field, "db_constraint", False):
            # No manager: one of the project's may hide rows, such as deleted ones that stay in the table.
            rows: QuerySet[Any] = QuerySet(relation.related_model)
            yield ~Exists(rows.filter(**{relation.field.name: OuterRef("pk")}))


def _before(days: int) -> datetime:
    return timezone.now() - timedelta(days=days)


def _pages(rows: QuerySet[Any], when: str) -> Iterator[list[Any]]:
    """Yield pages of keys, oldest first. Each page starts after the last key, so no row is read twice."""
    order = keyset.Order(rows.model._meta, [when])
    rows = rows.order_by(*order.by)
    last: keyset.Place | None = None
    while page := list((rows if last is None else rows.filter(order.after(last))).values_list(when, "pk")[:BATCH]):
        last = page[-1]
        yield [key for _, key in page]
