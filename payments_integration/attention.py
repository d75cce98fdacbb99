"""Sending ``attention``: the call is recorded in the transaction of what it is about, and sent after its commit.

A process that dies in between leaves the record, and ``send_overdue`` sends it. So it is sent at least once.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import connections, router, transaction
from django.db.models import Q
from django.utils import timezone

from payments_integration import signals
from payments_integration.db.statements import of_account
from payments_integration.db.transactions import deleted, updated
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.models import DueAttention
from payments_integration.reasons import Reason

logger = logging.getLogger(__name__)

#: The process that recorded a call sends it within this time, or has died.
OVERDUE_AFTER = timedelta(minutes=1)


def call_attention(
    sender: type[Any], reason: Reason, *, account: str, message: str, instance: Any | None = None
) -> None:
    """Have ``attention`` sent after the commit of the caller's transaction, or at once if there is none.

    ``instance``: a row of ``sender``; receivers get it as it is when the signal is sent.
    """
    using = router.db_for_write(DueAttention)
    due = DueAttention(
        account=account,
        reason=reason,
        message=message,
        sender=sender._meta.model_name,
        object_id="" if instance is None else str(instance.pk),
        due_at=timezone.now() + OVERDUE_AFTER,
    )
    due.save(using=using, force_insert=True)

    # Django logs the name of a hook that fails, and a ``partial`` has none.
    def send() -> None:
        _send(due)

    connection = connections[using]
    # With autocommit off, Django calls no hook after the caller's commit: the schedule sends it.
    if connection.commit_on_exit if connection.in_atomic_block else connection.get_autocommit():
        transaction.on_commit(send, using=using, robust=True)


def send_overdue(account: str | None = None) -> None:
    """Send what processes that have died recorded. One statement if there is nothing."""
    now = timezone.now()
    # One that is further ahead was recorded while our clock was wrong.
    is_overdue = Q(due_at__lte=now) | Q(due_at__gt=now + 2 * OVERDUE_AFTER)
    # A newer version, which runs beside this one during an upgrade, sends the reasons that this one does not know.
    overdue = of_account(DueAttention.objects.filter(is_overdue, reason__in=list(Reason)), account)
    for due in list(overdue.order_by("pk")):
        mine = DueAttention.objects.filter(pk=due.pk, due_at=due.due_at)
        if updated(mine, due_at=timezone.now() + OVERDUE_AFTER):
            try:
                _send(due)
            except INTERRUPTIONS:
                raise
            except BaseException:
                # A record that cannot be sent must not end the pass. It is tried again in a minute.
                logger.exception("Attention %s could not be sent", due.pk, extra=_ids(due))


def _send(due: DueAttention) -> None:
    """Log and send it, then delete the record. A failing receiver is logged, and the others still run."""
    logger.error("Attention (%s, account %s): %s", due.reason, due.account, due.message, extra=_ids(due))
    sender = apps.get_model(DueAttention._meta.app_label, due.sender)
    rows = sender._default_manager.using(router.db_for_write(sender))
    for receiver, result in signals.attention.send_robust(
        sender=sender,
        reason=Reason(due.reason),
        account=due.account,
        message=due.message,
        instance=rows.filter(pk=due.object_id).first() if due.object_id else None,
    ):
        if isinstance(result, Exception):
            logger.error("A receiver of attention failed: %r", receiver, exc_info=result, extra=_ids(due))
    deleted(DueAttention.objects.filter(pk=due.pk))


def _ids(due: DueAttention) -> dict[str, str]:
    """For log records."""
    extra = {"account": due.account}
    if due.sender == "event":
        extra["event_id"] = due.object_id
    elif due.sender == "operation":
        extra["operation_id"] = due.object_id
    return extra
