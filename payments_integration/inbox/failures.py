"""Count the failed attempts of an item; decide when to retry it and when to park it."""

from __future__ import annotations

import traceback
from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils import timezone

from payments_integration import conf
from payments_integration.attention import call_attention
from payments_integration.inbox.loading import Item
from payments_integration.models import EventState
from payments_integration.signals import Reason

_MAX_TRACEBACK = 20_000


class Failure(NamedTuple):
    """A failed attempt that was counted."""

    #: None: it was the last attempt, and the item is parked.
    retry_at: datetime | None

    @property
    def is_parked(self) -> bool:
        return self.retry_at is None


def count_failure(item: Item, error: BaseException) -> Failure | None:
    """Record a failed attempt. Returns None if the item no longer waits. Call in a transaction."""
    waits = conf.current().RECEIVER_RETRIES
    attempts = item.attempts + 1
    is_parked = attempts > len(waits)
    text = "".join(traceback.format_exception(error))[-_MAX_TRACEBACK:]
    waiting = type(item)._default_manager.filter(pk=item.pk, state=EventState.APPLIED)
    if not waiting.update(
        attempts=attempts,
        error=text.replace("\x00", "\ufffd"),
        state=EventState.PARKED if is_parked else EventState.APPLIED,
    ):
        return None
    if not is_parked:
        return Failure(timezone.now() + timedelta(seconds=waits[attempts - 1]))
    call_attention(
        type(item),
        Reason.DISPATCH_PARKED,
        account=item.account,
        message=f"Receivers keep failing for {item}; it is parked after {attempts} attempts. Fix them and replay it.",
        instance=item,
    )
    return Failure(None)


def first_wait() -> datetime:
    """Return when to try an item again that met a conflict but did not fail."""
    waits = conf.current().RECEIVER_RETRIES
    return timezone.now() + timedelta(seconds=waits[0] if waits else 10)
