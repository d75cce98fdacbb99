"""Tell the provider's time, by the difference of the clocks that a pass measured."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import OuterRef, Subquery
from django.utils import timezone

from payments_integration.models import AccountState


def provider_time(account: str) -> datetime:
    return time_by(AccountState.objects.filter(pk=account).values_list("clock_offset", flat=True).first())


def time_by(offset: float | None) -> datetime:
    """Return the provider's present time by its clock minus ours in seconds; None: that is not known."""
    return timezone.now() + timedelta(seconds=offset or 0)


def clock_offset(account: str | OuterRef) -> Subquery:
    """Return the provider's clock minus ours in seconds; null if it is not known."""
    return Subquery(AccountState.objects.filter(account=account).values("clock_offset")[:1])
