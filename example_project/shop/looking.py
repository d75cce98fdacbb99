"""A GET while somebody looks: a delivery may be late or lost."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TypeVar

from django.core.cache import cache
from django.utils import timezone

from payments_integration import services
from payments_integration.exceptions import PaymentsError
from payments_integration.models import DepositReference, Payment

logger = logging.getLogger(__name__)

Row = TypeVar("Row", Payment, DepositReference)

#: What nobody told us of for so long is read from the provider.
QUIET_FOR = timedelta(seconds=20)


def freshened(row: Row, quiet_for: timedelta = QUIET_FOR) -> Row:
    """The row as the provider has it, where it was silent for so long; read at most once in that time."""
    if timezone.now() - row.synced_at <= quiet_for:
        return row
    # Also of a provider that does not answer: no page in a browser asks it again and again.
    seconds = quiet_for.total_seconds()
    if not cache.add(f"shop-look-{row.pk}-{seconds:.0f}", 1, timeout=seconds):
        return row
    try:
        return services.refresh(row)
    except PaymentsError as error:
        logger.info("%s could not be read: %s", row.pk, error)
        return row
