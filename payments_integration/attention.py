"""Send ``attention``, and say what to do about each reason for it.

A call is recorded in the transaction of what it is about, and sent after its commit. If the process dies in between,
``send_overdue`` sends the recorded call. So it is sent at least once.
"""

from __future__ import annotations

import time
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
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import Reason

logger = get_logger(__name__)


_WORKER = (
    "check that the worker runs (with Celery: and beat), or the cron job of payments_process; the log shows errors"
)

#: What to do, and where.
ACTIONS: dict[Reason, str] = {
    Reason.DEFERRED_REFUSED: "see why (admin: Operations): correct the account's API_KEY or BASE_URL, or have the "
    "provider activate the merchant or raise the rate limit; it is then sent by itself",
    Reason.DEFERRED_REJECTED: "read why the provider rejected it (admin: Operations); if you still need it, repeat it "
    "with a new key",
    Reason.ENDPOINT: "repair it in the provider's dashboard, or delete it (payments_endpoints delete) and create "
    "another (payments_endpoints create)",
    Reason.EVENT_NOT_APPLIED: "upgrade the app: this version has a bug, and the event is applied after the upgrade "
    "(admin: Events; the log has the traceback)",
    Reason.EVENT_QUARANTINED: "read it (admin: Events, state quarantined); upgrade to a version that understands it, "
    "then press Replay",
    Reason.GAP_TOO_LONG: "wait for the full comparison, or start it: payments_reconcile --full",
    Reason.KEY_REPLACED: "put the old API_KEY back, configure the new key under an alias of its own, or delete "
    "what is mirrored under this one (payments_forget)",
    Reason.LEDGER_INCOMPLETE: "find out whether a backup was restored (follow “Restore a backup” in docs/runbook.md), "
    "or another installation uses the API key (give it its own); until then, look in the provider's dashboard before "
    "you approve or send",
    Reason.OPERATION_NEEDS_RESOLUTION: "look it up, then resolve it (admin: Operations, state “a person must decide”)",
    Reason.ORDER_UNPAID: "find out why the handler did not mark the order as paid; if the payment covers the price, "
    "mark it and deliver, otherwise refund (admin: To do)",
    Reason.PAID_TWICE: "refund the surplus (admin: To do)",
    Reason.PROVIDER_CLOCK: "check this server's clock (NTP); deliveries are refused if it is wrong by five minutes",
    Reason.SECRET_MISSING: "rotate the secret: payments_endpoints rotate; deliveries cannot be verified until then",
    Reason.DISPATCH_PARKED: "fix the receiver (admin: Events and Status changes, state parked, show the traceback), "
    "then press Replay",
    Reason.API_KEY_REFUSED: "correct the account's API_KEY, or get a new key from the provider",
    Reason.DATABASE: "start the database, migrate it (manage.py migrate), or mend what the code names: a full disk, a "
    "read-only server, a privilege, a time limit",
    Reason.DELIVERIES_MISSING: "check the endpoint's URL and secret, the project's routes (manage.py check), TLS, "
    "firewall and log: events arrive by reconciliation only",
    Reason.ERASURE_UNFINISHED: "resolve the open operations that it waits for (admin: Technical state, Operations)",
    Reason.EVENTS_HELD: "see why reconciliation does not complete its window (admin: Reconciliation runs)",
    Reason.EVENTS_PENDING: _WORKER,
    Reason.EVENTS_UNDISPATCHED: f"look for failing receivers (admin: Events, state applied); {_WORKER}",
    Reason.NEVER_RECONCILED: "run payments_reconcile, and check that it is scheduled",
    Reason.NO_ENDPOINT: "create one (payments_endpoints create), or add its secret to WEBHOOK_SECRETS",
    Reason.OPERATION_AWAITS_APPROVAL: "ask a person other than the one who created it to approve or reject it (admin: "
    "Operations)",
    Reason.OPERATION_UNKNOWN: "wait: it is being resolved; if you cannot wait, look it up (admin: Operations)",
    Reason.OPERATIONS_DUE: _WORKER,
    Reason.PROVIDER_UNREACHABLE: "wait: the app tries again by itself; if it lasts, check BASE_URL, the network and "
    "the provider's status",
    Reason.REFRESHES_DUE: _WORKER,
    Reason.REFRESHES_FAIL: "see why the objects cannot be read (admin: Technical state)",
    Reason.REMOVED_ACCOUNT: "configure the account again until its work is finished",
    Reason.RUNS_FAIL: "read the error (admin: Reconciliation runs); the provider may be down, or the API key wrong",
    Reason.RUNS_STOPPED: _WORKER,
    Reason.SECRET_UNREADABLE: "add the missing key to ENCRYPTION_KEYS again (without that setting: the old "
    "SECRET_KEY to SECRET_KEY_FALLBACKS), or rotate: payments_endpoints rotate",
    Reason.WATERMARK_OLD: "see why reconciliation does not complete (admin: Reconciliation runs); the provider "
    "deletes events after 30 days",
}

#: The process that records a call claims it, and sends it within this time unless it dies.
SENDING = Claims(timedelta(minutes=1))
#: Seconds between two calls of one process about the same trouble of the database.
TROUBLE_EVERY = 3600.0

_troubles: dict[str, float] = {}


def call_attention(about: Any, reason: Reason, message: str) -> None:
    """Send ``attention`` after the commit of the caller's transaction, or at once if there is none.

    ``about`` is a row, and receivers get it as it is when the signal is sent. An unsaved one names only its account.
    """
    using = router.db_for_write(DueAttention)
    due = DueAttention(
        account=about.account,
        reason=reason,
        message=message,
        sender=about._meta.model_name,
        object_id=str(about.pk or ""),
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


def name_trouble(error: DatabaseError, account: str | None) -> None:
    """Call attention to a database error that ended a pass, if it is about no row, such as a full disk.

    ``account`` is None if the pass is about all of them. The caller raises the error again.
    """
    what, now, account = trouble(error), time.monotonic(), account or ""
    if not what or now - _troubles.get(what, -TROUBLE_EVERY) < TROUBLE_EVERY:
        return
    _troubles[what] = now
    message = f"The database refused a statement ({what}) for no fault of a row: the pass ended, and its work waits."
    try:
        call_attention(Event(account=account), Reason.DATABASE, message)
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
        if isinstance(result, BaseException):
            logger.error("A receiver of attention failed: %r", receiver, exc_info=result, extra=_ids(due))
    if due.pk is not None:
        deleted(DueAttention.objects.filter(pk=due.pk))


def _ids(due: DueAttention) -> dict[str, str]:
    extra = {"account": due.account}
    if due.sender == "event":
        extra["event_id"] = due.object_id
    elif due.sender == "operation":
        extra["operation_id"] = due.object_id
    return extra
