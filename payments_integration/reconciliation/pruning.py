"""Deleting what is old enough, in batches; never what is untold, parked or in quarantine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from payments_integration import conf
from payments_integration.models import Event, EventState, ReconciliationRun, RunState

RUN_DAYS = 90
_BATCH = 1000


def prune(account: str | None = None) -> dict[str, int]:
    """Blank old raw bodies, delete old events and records of passes; returns what was done by name."""
    settings, now = conf.current(), timezone.now()
    told = Event.objects.filter(state=EventState.DONE)
    runs = ReconciliationRun.objects.exclude(state=RunState.RUNNING)
    if account is not None:
        told, runs = told.filter(account=account), runs.filter(account=account)
    bodies_before = now - timedelta(days=settings.EVENT_BODY_DAYS)
    return {
        "bodies": _in_batches(
            lambda: told.filter(created_at__lt=bodies_before, received_at__lt=bodies_before, body__isnull=False),
            lambda ids: Event.objects.filter(pk__in=ids, state=EventState.DONE).update(body=None),
        ),
        "events": _in_batches(
            lambda: told.filter(
                created_at__lt=now - timedelta(days=settings.EVENT_DAYS),
                received_at__lt=now - timedelta(days=conf.MIN_EVENT_DAYS),
            ),
            lambda ids: Event.objects.filter(pk__in=ids, state=EventState.DONE).delete()[0],
        ),
        "runs": _in_batches(
            lambda: runs.filter(started_at__lt=now - timedelta(days=RUN_DAYS)),
            lambda ids: ReconciliationRun.objects.filter(pk__in=ids).delete()[0],
        ),
    }


def _in_batches(rows: Callable[[], QuerySet[Any]], act: Callable[[list[Any]], int]) -> int:
    total = 0
    while ids := list(rows().values_list("pk", flat=True)[:_BATCH]):
        done = act(ids)
        total += done
        if not done:
            break
    return total
