"""The signals that merchants receive. All are sent after the mirror has been committed."""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

from payments_integration.reasons import Reason

logger = logging.getLogger(__name__)

#: An event was applied. Sent once per event, in ``created_at`` order per object, inside the transaction that marks the
#: event as told: the receiver's database work commits with that mark or not at all. An exception of a receiver
#: rolls back and is retried. Arguments: ``sender`` (the model class; Event for kinds that are not mirrored),
#: ``event``, ``instance`` (the mirror row as it is now; None for kinds that are not mirrored), ``previous_status``
#: (the mirrored status before the event was applied), ``is_stale`` (a newer event of this object was told before).
event_received = Signal()

#: A mirrored status changed. Sent once per change, in the same telling as its event. Arguments: ``sender``,
#: ``instance`` (the mirror row as it is now), ``previous_status`` (empty: new here), ``status`` (what it changed to),
#: ``event`` (None where an answer of the provider brought the change), ``status_change``, ``is_stale`` (a newer event
#: of this object was told before, as when a parked one is replayed).
status_changed = Signal()

#: Something needs a person. Sent outside transactions, never retried. Arguments: ``sender`` (a model class),
#: ``reason`` (a ``reasons.Reason``, which equals its stable short name; ``reasons.ACTIONS`` says what to do),
#: ``account``, ``message``, ``instance`` (a row, or None).
attention = Signal()


def call_attention(
    sender: type[Any], reason: Reason, *, account: str, message: str, instance: Any | None = None
) -> None:
    """Log and send ``attention``; a failing receiver is logged and stops nothing."""
    logger.error("Attention (%s, account %s): %s", reason, account, message)
    for receiver, result in attention.send_robust(
        sender=sender, reason=reason, account=account, message=message, instance=instance
    ):
        if isinstance(result, Exception):
            logger.error("A receiver of attention failed: %r", receiver, exc_info=result)
