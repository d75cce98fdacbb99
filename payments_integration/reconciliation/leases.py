"""One reconciliation per account at a time: a lease in the database, free soon after its holder died."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, router, transaction
from django.db.models import Q
from django.utils import timezone

from payments_integration.exceptions import PaymentsError
from payments_integration.models import AccountState
from payments_integration.transactions import updated

LEASE = timedelta(seconds=15)
#: A claim that ends later than it can was taken while the clock was ahead: it is void.
CLOCK_SLACK = timedelta(minutes=1)


class LeaseTaken(PaymentsError):
    """Another process reconciles this account right now."""


class LeaseLost(PaymentsError):
    """This process was away for too long and another one took over; nothing more is written."""


class Lease:
    """The right to move an account's watermark. Every write renews it and fails once it is lost."""

    def __init__(self, account: str, token: str) -> None:
        self.account = account
        self._token = token

    def write(self, **values: Any) -> None:
        """Renew, and set fields of the account's state in the same statement; LeaseLost if it is not ours any more."""
        values.setdefault("lease_until", timezone.now() + LEASE)
        if not updated(AccountState.objects.filter(pk=self.account, lease_token=self._token), **values):
            raise LeaseLost(f"the lease on account {self.account} was lost")

    def renew(self) -> None:
        self.write()

    def state(self) -> AccountState:
        return AccountState.objects.get(pk=self.account)


@contextmanager
def lease(account: str) -> Iterator[Lease]:
    """Hold the account's lease; LeaseTaken when somebody else has it."""
    now, token = timezone.now(), secrets.token_hex(16)
    ensure_state(account)
    free = Q(lease_until=None) | expired("lease_until", LEASE)
    if not updated(AccountState.objects.filter(free, pk=account), lease_token=token, lease_until=now + LEASE):
        raise LeaseTaken(f"account {account} is being reconciled by another process")
    held = Lease(account, token)
    try:
        yield held
    finally:
        updated(AccountState.objects.filter(pk=account, lease_token=token), lease_token="", lease_until=None)


def expired(field: str, length: timedelta) -> Q:
    """Whether a claim of this length, which ends at ``field``, has run out, also when clocks stepped back."""
    now = timezone.now()
    return Q(**{f"{field}__lte": now}) | Q(**{f"{field}__gt": now + length + CLOCK_SLACK})


def ensure_state(account: str) -> None:
    """Make the account's row if there is none."""
    if AccountState.objects.filter(pk=account).exists():
        return
    try:
        with transaction.atomic(using=router.db_for_write(AccountState)):
            AccountState.objects.create(account=account)
    except IntegrityError:
        pass  # another process was first
