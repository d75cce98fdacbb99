"""Find what was sent although the ledger does not know it.

After a restored backup, an operation that was sent seems unsent, and one that was recorded since is not there.
Handlers and jobs then ask for it again. The same is true in a copy of production with its key.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from django.utils import timezone

from payments_integration.models import Operation
from payments_integration.outbox import look_ups, operations
from payments_integration.outbox.intents import Intent
from payments_integration.sync import get_client

#: From this age on, an operation that the ledger takes for unsent is looked up first.
LOOK_AFTER = timedelta(hours=1)


def needs_look_up(operation: Operation) -> bool:
    """Return True if the operation may have been sent although the ledger takes it for unsent.

    An attempt that the ledger knows needs no such look.
    """
    if operation.may_have_run:
        return False
    # Our clock may have been set back since.
    return operations.asked_late(operation) or abs(timezone.now() - operation.created_at) > LOOK_AFTER


def is_mirrored(asked: Intent | Operation) -> bool:
    """Return True if an object in the mirror may be the result of the same call, made by a ledger that was lost.

    Takes at most one statement.
    """
    lost = operations.CALLS[asked.operation].lost_results(asked)
    return lost is not None and lost.exists()


def find_result(operation: Operation) -> look_ups.Verdict | None:
    """Look in the mirror, and at the provider if ``needs_look_up``, before a first send.

    Returns None if nothing speaks against sending it. Writes nothing to the operation. Raises what reading raises.
    """
    call = operations.of(operation)
    finding: operations.Finding
    if needs_look_up(operation):
        finding = call.find_forgotten(get_client(operation.account), operation)
    else:
        lost = None if operation.may_have_run else call.lost_results(operation)
        if lost is None:
            return None
        items = list(lost[: operations.MAX_SCANNED + 1])
        finding = operations.Candidates(items, complete=len(items) <= operations.MAX_SCANNED)
    if isinstance(finding, operations.Happened):
        return look_ups.Verdict(finding.note, took_effect=True)
    if isinstance(finding, operations.Unclear):
        return None
    free = look_ups.without_operation(operation, finding)
    if finding.complete and not free:
        return None
    verdict = look_ups.judged(operation, finding, free, "and may be its result or another one's")
    return replace(verdict, note=f"it was not sent: {verdict.note}") if verdict.result is None else verdict
