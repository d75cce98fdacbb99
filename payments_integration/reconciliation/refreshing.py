"""Working off due refreshes: a GET outside any transaction, then a write that never goes back in time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db import router
from django.db.models import F
from django.utils import timezone

from payments_integration import conf, statements
from payments_integration.client import at_most
from payments_integration.exceptions import NotFound, PaymentsError
from payments_integration.models import DueRefresh
from payments_integration.services import reads
from payments_integration.transactions import deleted, updated
from payments_integration.wire import WireError

logger = logging.getLogger(__name__)

#: While one process reads an object, the others leave it alone.
CLAIM = timedelta(seconds=90)
FIRST_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(hours=1)
_PAGE = 100
#: Seconds that a GET waits for the rate limit.
LONGEST_PACING = 120.0
#: Seconds that a GET gets at least when somebody waits.
MIN_HURRY = 1.0


def refresh_due(
    account: str | None = None,
    *,
    deadline: float | None = None,
    hurry: bool = False,
    beat: Callable[[], None] = lambda: None,
) -> int:
    """Read every object that is due by GET; returns how many were settled.

    Failures are recorded and tried again later. ``deadline``: a ``time.monotonic()`` after which none is begun.
    ``hurry``: somebody waits until then, so the requests must not outlast it. ``beat`` is called before each.
    """
    settled = 0
    begun = timezone.now()
    if statements.is_empty(DueRefresh, using=router.db_for_write(DueRefresh)):
        return settled
    while True:
        due = DueRefresh.objects.filter(due_at__lte=begun)
        if account is not None:
            due = due.filter(account=account)
        page = list(due.order_by("due_at", "pk")[:_PAGE])
        for mark in page:
            if deadline is not None and time.monotonic() >= deadline:
                return settled
            beat()
            if deadline is None or not hurry:
                settled += _refresh(mark)
            else:
                with at_most(max(MIN_HURRY, deadline - time.monotonic())):
                    settled += _refresh(mark, hurry=True)
        if len(page) < _PAGE:
            return settled


def _refresh(mark: DueRefresh, *, hurry: bool = False) -> bool:
    as_read = DueRefresh.objects.filter(pk=mark.pk, due_at=mark.due_at, marks=mark.marks)
    if not updated(as_read, due_at=timezone.now() + CLAIM):
        return False
    if mark.account not in conf.current().ACCOUNTS:
        _postpone(mark, f"the account {mark.account} is not configured any more")
        return False
    try:
        _read(mark, hurry=hurry)
    except (PaymentsError, WireError) as error:
        logger.info("Reading %s failed: %s", mark, error)
        _postpone(mark, f"{type(error).__name__}: {error}")
        return False
    # Asked for again meanwhile: it stays, and is due now.
    if deleted(DueRefresh.objects.filter(pk=mark.pk, marks=mark.marks)):
        return True
    updated(DueRefresh.objects.filter(pk=mark.pk), due_at=_later(mark), attempts=F("attempts") + 1)
    return False


def _read(mark: DueRefresh, *, hurry: bool) -> None:
    # A row of what is not found is kept and marked as gone.
    with suppress(NotFound):
        reads.read(
            mark.object_kind, mark.account, mark.object_id, background=not hurry, wait=0.0 if hurry else LONGEST_PACING
        )


def _postpone(mark: DueRefresh, error: str) -> None:
    updated(DueRefresh.objects.filter(pk=mark.pk), due_at=_later(mark), attempts=F("attempts") + 1, error=error)


def _later(mark: DueRefresh) -> Any:
    return timezone.now() + min(FIRST_WAIT * 2 ** min(mark.attempts, 20), LONGEST_WAIT)
