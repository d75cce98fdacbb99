"""Send ``attention``: the call is recorded in the transaction of what it is about, and sent after its commit.

If the process dies in between, ``send_overdue`` sends the recorded call. So it is sent at least once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import DatabaseError, connections, router, transaction

from payments_integration import signals
from payments_integration.db import statements
from payments_integration.db.claims import Claims, new_token
from payments_integration.db.refusals import trouble
from payments_integration.db.statements import filter_account_last
from payments_integration.db.transactions import deleted
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.models import DueAttention, Event
from payments_integration.reasons import Reason

logger = logging.getLogger(__name__)

#: The process that records a call claims it, and sends it within this time unless it dies.
SENDING = Claims(timedelta(minutes=1))
#: Seconds between two calls of one process about the same trouble of the database.
TROUBLE_EVERY = 3600.0

_troubles: dict[str, float] = {}


def call_attention(
    sender: type[Any], reason: Reason, *, account: str, message: str, instance: Any | None = None
) -> None:
    """Send ``attention`` after the commit of the caller's transaction, or at once if there is none.

    ``instance`` is a row of ``sender``. Receivers get it as it is when the signal is sent.
    """
    using = router.db_for_write(DueAttention)
    due = DueAttention(
        account=account,
        reason=reason,
        message=message,
        sender=sender._meta.model_name,
        object_id="" if instance is None else str(instance.pk),
        **SENDING.values(new_token()),
    )
    # Unlike ``save``, this calls no receivers of other apps, which could fail and keep the trouble unnamed.
    statements.insert_many([due])

    # Django logs the name of a hook that fails, and a ``partial`` has none.
    def send() -> None:
        _send(due)

    connection = connections[using]
    # With autocommit off, Django calls no hook after the caller's commit: the schedule sends it.
    if connection.commit_on_exit if connection.in_atomic_block else connection.get_autocommit():
        transaction.on_commit(send, using=using, robust=True)


@contextmanager
def naming_trouble(account: str | None) -> Iterator[None]:
    """Call attention to a database error that is about no row, such as a full disk, and raise it again.

    ``account`` is None if the pass is about all of them.
    """
    try:
        yield
    except DatabaseError as error:
        if what := trouble(error):
            _name_trouble(what, account or "")
        raise


def _name_trouble(what: str, account: str) -> None:
    now = time.monotonic()
    if now - _troubles.get(what, -TROUBLE_EVERY) < TROUBLE_EVERY:
        return
    _troubles[what] = now
    message = f"The database refused a statement ({what}) for no fault of a row: the pass ended, and its work waits."
    try:
        call_attention(Event, Reason.DATABASE, account=account, message=message)
    except DatabaseError:
        # It cannot be recorded, so it is sent at once.
        _send(DueAttention(account=account, reason=Reason.DATABASE, message=message, sender="event"))


def send_overdue(account: str | None = None) -> None:
    """Send the calls that dead processes recorded. One statement if there are none."""
    # During an upgrade a newer version runs beside this one, and sends the reasons that this one does not know.
    overdue = filter_account_last(DueAttention.objects.filter(SENDING.free(), reason__in=list(Reason)), account)
    for due in list(overdue.order_by("pk")):
        if SENDING.take(DueAttention.objects.filter(pk=due.pk)):
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
    if due.pk is not None:
        deleted(DueAttention.objects.filter(pk=due.pk))


def _ids(due: DueAttention) -> dict[str, str]:
    """Return ids for log records."""
    extra = {"account": due.account}
    if due.sender == "event":
        extra["event_id"] = due.object_id
    elif due.sender == "operation":
        extra["operation_id"] = due.object_id
    return extra
