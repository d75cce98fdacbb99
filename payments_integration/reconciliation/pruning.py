"""Letting go of what is old enough, in short transactions; never of what is untold, parked or in quarantine.

Raw bodies, event rows and records of passes have a retention. Changes of status and of balances are the history that
people look things up in, the ledger must know every key for ever, and so must erasures: they stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import router
from django.db.models import Q, QuerySet
from django.utils import timezone

from payments_integration import conf, erasure
from payments_integration.models import Event, EventState, ReconciliationRun
from payments_integration.transactions import Turns, deleted, updated

#: No pass lasts so long: one that still says that it runs is dead.
RUN_DAYS = 90
#: Rows per transaction.
BATCH = 500


@dataclass(frozen=True, slots=True)
class _Job:
    """What is due, by its time; and what is done with so many of them, which looks once more whether they are."""

    rows: QuerySet[Any]
    when: str
    act: Callable[[QuerySet[Any]], int]


def prune(account: str | None = None, *, dry_run: bool = False) -> dict[str, int]:
    """Blank old raw bodies, delete old events and records of passes, erase what had to wait; returns counts by name.

    Can be interrupted and repeated, and run beside itself. ``dry_run``: only count.
    """
    jobs = _jobs(account)
    if dry_run:
        return {name: job.rows.count() for name, job in jobs.items()}
    counts = {name: _work_off(job) for name, job in jobs.items()}
    counts["erased"] = erasure.finish(account, thorough=True).done.total()
    return counts


def outlived(account: str | None, days: int) -> QuerySet[Event]:
    """Told events created before so many days that may go.

    A row stands for its id: while the provider may still deliver it, it must be known.
    """
    return _done(account).filter(created_at__lt=_before(days), received_at__lt=_before(conf.MIN_EVENT_DAYS))


def pages(rows: QuerySet[Any], when: str) -> Iterator[list[Any]]:
    """Keys, oldest first, each looked at once: what is done already is not gone through again for every page."""
    rows = rows.order_by(when, "pk")
    last: tuple[Any, Any] | None = None
    while True:
        page = rows
        if last is not None:
            later = Q(**{f"{when}__gt": last[0]}) | Q(**{when: last[0], "pk__gt": last[1]})
            page = rows.filter(later, **{f"{when}__gte": last[0]})
        found = list(page.values_list(when, "pk")[:BATCH])
        if not found:
            return
        last = found[-1]
        yield [key for _, key in found]


def _jobs(account: str | None) -> dict[str, _Job]:
    settings = conf.current()
    runs = ReconciliationRun.objects.all()
    if account is not None:
        runs = runs.filter(account=account)
    return {
        # What was found late is kept as long as what came in time.
        "bodies": _Job(
            _done(account).filter(
                created_at__lt=_before(settings.EVENT_BODY_DAYS),
                received_at__lt=_before(settings.EVENT_BODY_DAYS),
                body__isnull=False,
            ),
            "created_at",
            lambda rows: updated(rows, body=None),
        ),
        "events": _Job(outlived(account, settings.EVENT_DAYS), "created_at", deleted),
        "runs": _Job(runs.filter(started_at__lt=_before(RUN_DAYS)), "started_at", deleted),
    }


def _work_off(job: _Job) -> int:
    turns = Turns(router.db_for_write(job.rows.model))
    done = 0
    for keys in pages(job.rows, job.when):
        done += job.act(job.rows.filter(pk__in=keys))
        turns.give()
    return done


def _done(account: str | None) -> QuerySet[Event]:
    done = Event.objects.filter(state=EventState.DONE)
    return done if account is None else done.filter(account=account)


def _before(days: int) -> datetime:
    return timezone.now() - timedelta(days=days)
