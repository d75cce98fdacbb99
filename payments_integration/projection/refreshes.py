"""Requests to read objects by GET, because their state is not certain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce
from operator import or_

from django.db import connections, router
from django.db.models import F, Q
from django.utils import timezone

from payments_integration.db import statements
from payments_integration.db.transactions import repeatable
from payments_integration.models import DueRefresh, ObjectKey

#: The reason for another refresh after a GET that could not be written.
CHANGED_MEANWHILE = "changed_meanwhile"


def request_refresh(account: str, kind: str, object_id: str, reason: str, *, due_at: datetime | None = None) -> None:
    """Request a refresh of one object, now or at ``due_at``. Joins the caller's transaction or makes its own."""

    def request() -> None:
        request_refreshes({(account, str(kind), object_id): reason}, due_at=due_at)

    # The transaction of the answer or the event is retried as a whole.
    if connections[router.db_for_write(DueRefresh)].in_atomic_block:
        request()
    else:
        repeatable(request, using=router.db_for_write(DueRefresh))


def request_refreshes(reasons: Mapping[ObjectKey, str], *, due_at: datetime | None = None) -> None:
    """Request refreshes of objects, within a transaction. At most four statements; after an IntegrityError, which
    means a lost race, repeat the transaction.

    If a refresh was requested before, the earlier time stays, and ``marks`` grows, so that a GET that is already under
    way does not count as an answer to this request.
    """
    if not reasons:
        return
    due = due_at or timezone.now()
    # Locked, so that a worker that finishes one of them waits, and then sees the new request.
    requested = DueRefresh.objects.select_for_update().filter(of_objects(reasons)).order_by("pk")
    known = {refresh.key: refresh for refresh in requested}
    statements.insert_many(
        [
            DueRefresh(account=account, object_kind=kind, object_id=object_id, reason=reason, due_at=due)
            for (account, kind, object_id), reason in sorted(reasons.items())
            if (account, kind, object_id) not in known
        ],
        keys=False,
    )
    if known:
        ids = [refresh.pk for refresh in known.values()]
        # A GET that requests another GET must not cancel the backoff, or the two would repeat for ever.
        later = [row.pk for key, row in known.items() if row.due_at > due and reasons[key] != CHANGED_MEANWHILE]
        DueRefresh.objects.filter(pk__in=ids).update(marks=F("marks") + 1)
        if later:
            DueRefresh.objects.filter(pk__in=later, due_at__gt=due).update(due_at=due, attempts=0)


def of_objects(keys: Iterable[ObjectKey]) -> Q:
    """A filter for rows that belong to one of these objects."""
    groups: dict[tuple[str, str], list[str]] = {}
    for account, kind, object_id in sorted(keys):
        groups.setdefault((account, kind), []).append(object_id)
    return reduce(
        or_,
        (
            Q(account=account, object_kind=kind, object_id__in=object_ids)
            for (account, kind), object_ids in groups.items()
        ),
    )
