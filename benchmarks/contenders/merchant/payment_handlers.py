from __future__ import annotations

import os
from typing import Any

from django.db.models import F
from django.utils import timezone

from benchmarks.contenders.merchant.models import Handled
from payments_integration.handlers import on_event
from payments_integration.models import Event


# Also what is older than an event that was dispatched: deliveries of one payment overtake each other.
@on_event("payment.*", include_stale=True, database_only=os.environ.get("BENCH_HANDLER") == "database_only")
def handle(event: Event, **kwargs: Any) -> None:
    Handled.objects.filter(pk=event.id).update(calls=F("calls") + 1, called_at=timezone.now())
