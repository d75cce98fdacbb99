"""The provider's clock, as far as we know it: ours, and how far they were apart when a pass last looked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils import timezone

from payments_integration.models import AccountState


def provider_times(accounts: Iterable[str]) -> dict[str, datetime]:
    """What time it is at the provider, by account; one statement."""
    now = timezone.now()
    names = set(accounts)
    offsets = dict(AccountState.objects.filter(account__in=names).values_list("account", "clock_offset"))
    return {account: now + timedelta(seconds=offsets.get(account) or 0) for account in names}


def provider_time(account: str) -> datetime:
    return provider_times([account])[account]
