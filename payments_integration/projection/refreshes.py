"""Marks for objects that must be read by GET: because what came does not tell their state for sure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import or_

from django.db import connections, router
from django.db.models import F, Q
from django.utils import timezone

from payments_integration import bulk
from payments_integration.models import DueRefresh
from payments_integration.transactions import repeatable

#: The reason of a refresh that a GET could not settle.
CHANGED_MEANWHILE = "changed_meanwhile"

#: (account, kind, id)
ObjectKey = tuple[str, str, str]


def request_refresh(account: str, kind: str, object_id: str, reason: str, *, due_at: datetime | None = None) -> None:
    """Have one object read again, now or at ``due_at``. Joins a transaction or makes its own."""

    def request() -> None:
        request_refreshes({(account, str(kind), object_id): reason}, due_at=due_at)

    # The answer's or the event's transaction is repeated as a whole.
    if connections[router.db_for_write(DueRefresh)].in_atomic_block:
        request()
    else:
        repeatable(request, using=router.db_for_write(DueRefresh))


def request_refreshes(reasons: Mapping[ObjectKey, str], *, due_at: datetime | None = None) -> None:
    """Have objects read again, within a transaction. At most four statements; an IntegrityError means a lost race:
    repeat the transaction.

    An object that is marked already becomes due at the earlier time, and its mark counts one up, so that a GET that
    is under way does not settle this request too.
    """
    if not reasons:
        return
    due = due_at or timezone.now()
    # Held, so that who settles a mark meanwhile waits and then sees that it was asked for again.
    held = DueRefresh.objects.select_for_update().filter(any_of(reasons)).order_by("pk")
    marked = {mark.key: mark for mark in held}
    bulk.insert(
        [
            DueRefresh(account=account, object_kind=kind, object_id=object_id, reason=reason, due_at=due)
            for (account, kind, object_id), reason in sorted(reasons.items())
            if (account, kind, object_id) not in marked
        ],
        keys=False,
    )
    if marked:
        ids = [mark.pk for mark in marked.values()]
        # What a GET asks for itself waits as long as its failures have it wait, or it would go round in circles.
        later = [mark.pk for key, mark in marked.items() if mark.due_at > due and reasons[key] != CHANGED_MEANWHILE]
        DueRefresh.objects.filter(pk__in=ids).update(marks=F("marks") + 1)
        if later:
            DueRefresh.objects.filter(pk__in=later, due_at__gt=due).update(due_at=due, attempts=0)


def any_of(keys: Mapping[ObjectKey, str]) -> Q:
    """Rows that belong to one of these objects."""
    groups: dict[tuple[str, str], list[str]] = {}
    for account, kind, object_id in keys:
        groups.setdefault((account, kind), []).append(object_id)
    return reduce(
        or_,
        (
            Q(account=account, object_kind=kind, object_id__in=object_ids)
            for (account, kind), object_ids in sorted(groups.items())
        ),
    )
