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
_BATCH = 500


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


def _jobs(account: str | None) -> dict[str, _Job]:
    settings, now = conf.current(), timezone.now()
    told, runs = Event.objects.filter(state=EventState.DONE), ReconciliationRun.objects.all()
    if account is not None:
        told, runs = told.filter(account=account), runs.filter(account=account)

    def before(days: int) -> datetime:
        return now - timedelta(days=days)

    return {
        # What was found late is kept as long as what came in time.
        "bodies": _Job(
            told.filter(
                created_at__lt=before(settings.EVENT_BODY_DAYS),
                received_at__lt=before(settings.EVENT_BODY_DAYS),
                body__isnull=False,
            ),
            "created_at",
            lambda rows: updated(rows, body=None),
        ),
        # A row stands for its id: while the provider may still deliver it, it must be known.
        "events": _Job(
            told.filter(created_at__lt=before(settings.EVENT_DAYS), received_at__lt=before(conf.MIN_EVENT_DAYS)),
            "created_at",
            deleted,
        ),
        "runs": _Job(runs.filter(started_at__lt=before(RUN_DAYS)), "started_at", deleted),
    }


def _work_off(job: _Job) -> int:
    turns = Turns(router.db_for_write(job.rows.model))
    done = 0
    for keys in _pages(job):
        done += job.act(job.rows.filter(pk__in=keys))
        turns.give()
    return done


def _pages(job: _Job) -> Iterator[list[Any]]:
    """Keys, oldest first, each looked at once: what is done already is not gone through again for every page."""
    rows = job.rows.order_by(job.when, "pk")
    last: tuple[Any, Any] | None = None
    while True:
        page = rows
        if last is not None:
            later = Q(**{f"{job.when}__gt": last[0]}) | Q(**{job.when: last[0], "pk__gt": last[1]})
            page = rows.filter(later, **{f"{job.when}__gte": last[0]})
        found = list(page.values_list(job.when, "pk")[:_BATCH])
        if not found:
            return
        last = found[-1]
        yield [key for _, key in found]
