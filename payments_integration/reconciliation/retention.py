"""Retention: old raw bodies, events and records of passes are deleted, or moved into files first.

Only events that are done and older than their retention go, never one that is pending, held, undispatched, parked or
quarantined. Changes of status and of balances stay, because people look them up. Operations and erasures stay, because
every idempotency key and every erased object must be known for ever.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any

from django.db import router
from django.db.models import Q, QuerySet
from django.utils import timezone

from payments_integration import archives, conf, erasure
from payments_integration.archives import ArchiveError as ArchiveError
from payments_integration.db.indexes import has_partial_indexes
from payments_integration.db.transactions import WriterPauses, deleted, updated
from payments_integration.models import Event, EventState, ReconciliationRun

#: No pass lasts so long: one that is still recorded as running has died.
RUN_DAYS = 90
#: Rows per transaction.
BATCH = 500
#: Events per archive file.
FILE_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Archived:
    """One file. ``deleted`` is less than ``written`` if an event was replayed or pruned meanwhile."""

    path: Path
    written: int
    deleted: int


@dataclass(frozen=True, slots=True)
class _Job:
    """Rows to prune, in the order of ``when``. ``act`` handles a batch; its query checks again that they may go."""

    rows: QuerySet[Any]
    when: str
    act: Callable[[QuerySet[Any]], int]


def prune(account: str | None = None, *, dry_run: bool = False) -> dict[str, int]:
    """Blank old raw bodies, delete old events and records of passes, finish erasures; returns counts by name.

    It can be interrupted, repeated and run concurrently. ``dry_run``: only count.
    """
    jobs = _jobs(account)
    if dry_run:
        # Like the pruning itself: for a COUNT the planner, which expects many, would read the whole table.
        return {name: sum(map(len, _pages(job.rows, job.when))) for name, job in jobs.items()}
    counts = {name: _prune(job) for name, job in jobs.items()}
    counts["erased"] = erasure.finish(account, thorough=True).done.total()
    return counts


def archive(folder: Path, *, days: int, account: str | None = None) -> Iterator[Archived]:
    """Move done events created more than ``days`` ago into files of this folder, oldest first; yields each file.

    A file is complete, on disk and read back before its events are deleted. It can be interrupted and repeated: events
    may then be in two files, but none is lost. Raises ArchiveError and OSError.
    """
    if days < conf.MIN_EVENT_DAYS:
        raise ValueError(f"events must be kept for {conf.MIN_EVENT_DAYS} days")
    lines = _lines(account, days)
    name = f"events-{timezone.now():%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    number = 0
    # An erasure that rewrites the files has blanked the rows before: what is read here must not be older.
    with archives.locked(folder, exclusive=False):
        while first := next(lines, None):
            number += 1
            path = folder / f"{name}-{number:04d}{archives.SUFFIX}"
            written = archives.write(path, chain((first,), islice(lines, FILE_ROWS - 1)))
            ids = archives.read_back(path, written)
            archives.commit(path)
            yield Archived(path, written, _delete(ids, account, days))


def _jobs(account: str | None) -> dict[str, _Job]:
    settings = conf.current()
    runs = ReconciliationRun.objects.all()
    if account is not None:
        runs = runs.filter(account=account)
    return {
        # The retention of an event that was found late begins when it was found.
        "bodies": _Job(
            _done(account).filter(
                created_at__lt=_before(settings.EVENT_BODY_DAYS),
                received_at__lt=_before(settings.EVENT_BODY_DAYS),
                body__isnull=False,
            ),
            # In the order of an index that holds only these events; without it in that of the index by state.
            "received_at" if has_partial_indexes(router.db_for_write(Event)) else "created_at",
            lambda rows: updated(rows, body=None),
        ),
        "events": _Job(_removable(account, settings.EVENT_DAYS), "created_at", deleted),
        "runs": _Job(runs.filter(started_at__lt=_before(RUN_DAYS)), "started_at", deleted),
    }


def _prune(job: _Job) -> int:
    pauses = WriterPauses(router.db_for_write(job.rows.model))
    done = 0
    for keys in _pages(job.rows, job.when):
        done += job.act(job.rows.filter(pk__in=keys))
        pauses.pause_if_due()
    return done


def _removable(account: str | None, days: int) -> QuerySet[Event]:
    """Done events created more than ``days`` ago that may be deleted.

    The row is how a second delivery is recognised, so it stays while the provider may still deliver the event.
    """
    return _done(account).filter(created_at__lt=_before(days), received_at__lt=_before(conf.MIN_EVENT_DAYS))


def _done(account: str | None) -> QuerySet[Event]:
    done = Event.objects.filter(state=EventState.DONE)
    return done if account is None else done.filter(account=account)


def _before(days: int) -> datetime:
    return timezone.now() - timedelta(days=days)


def _pages(rows: QuerySet[Any], when: str) -> Iterator[list[Any]]:
    """Pages of keys, oldest first. Each page starts after the last key, so no row is read twice."""
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


def _lines(account: str | None, days: int) -> Iterator[dict[str, Any]]:
    """The rows to archive, one page in memory at a time and no database cursor held open."""
    fields = [field.attname for field in Event._meta.concrete_fields]
    rows = _removable(account, days)
    for keys in _pages(rows, "created_at"):
        for values in rows.filter(pk__in=keys).order_by("created_at", "pk").values(*fields):
            yield {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    # Some drivers return a memoryview.
    return bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else value


def _delete(ids: list[str], account: str | None, days: int) -> int:
    """Delete these events if they may still go: one that is being dispatched again stays."""
    pauses, count = WriterPauses(router.db_for_write(Event)), 0
    for start in range(0, len(ids), BATCH):
        count += deleted(_removable(account, days).filter(pk__in=ids[start : start + BATCH]))
        pauses.pause_if_due()
    return count
