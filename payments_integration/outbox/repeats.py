"""Find calls that were made before although the ledger, or the caller, does not know it.

After a restored backup, an operation that was sent seems unsent, and one that was recorded since is not there.
Handlers and jobs then ask for it again. The same is true in a copy of production with its key. A job may also ask for
what a user has just asked for.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from django.utils import timezone

from payments_integration import conf, permissions, sync
from payments_integration.enums import Kind
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import look_ups, operations
from payments_integration.outbox.look_ups import Verdict
from payments_integration.sync import get_client

OTHER_PROJECT = (
    "it was not sent: it was recorded under another API key or address, and the provider knows none of the newest "
    "objects under this one"
)
#: From this age on, an operation that the ledger takes for unsent is looked up first.
#: The key protects a younger one, which was sent with the same API key.
LOOK_AFTER = timedelta(hours=1)


def find_obstacle(operation: Operation) -> Verdict | None:
    """Return what became of an operation that a worker must not send, or why a person decides; None: it may be sent.

    Raises what reading raises.
    """
    return _find_other_project(operation) or find_result(operation) or _find_same_by_user(operation)


def needs_look_up(operation: Operation) -> bool:
    """Return True if the operation may have been sent although the ledger takes it for unsent.

    An attempt that the ledger knows needs no such look.
    """
    if operation.may_have_run:
        return False
    # Our clock may have been set back since.
    is_old = abs(timezone.now() - operation.created_at) > LOOK_AFTER
    return is_old or operations.asked_late(operation) or _was_recorded_elsewhere(operation)


def _was_recorded_elsewhere(operation: Operation) -> bool:
    """Return True after a change of the API key or address: the provider may not know the idempotency key there."""
    is_configured = operation.account in conf.aliases()
    return is_configured and operation.sent_to not in ("", conf.fingerprint(operation.account))


def has_lost_result(operation: Operation) -> bool:
    """Return True if an object in the mirror may be the result of the same call, made by a ledger that was lost."""
    lost = operations.of(operation).lost_results(operation)
    return lost is not None and lost.exists()


def find_result(operation: Operation) -> Verdict | None:
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
        return Verdict(finding.note, took_effect=True)
    if isinstance(finding, operations.Unclear):
        return None
    free = look_ups.without_operation(operation, finding)
    if finding.complete and not free:
        return None
    verdict = look_ups.judged(operation, finding, free, "and may be its result or another one's")
    return replace(verdict, note=f"it was not sent: {verdict.note}") if verdict.result is None else verdict


def _find_other_project(operation: Operation) -> Verdict | None:
    """Return a verdict if the money would leave another project than the operation was recorded for.

    A copy of production, loaded where another API key is configured, has payouts that were not sent yet. The objects
    of earlier operations decide, because the mirror may be mixed by now; without one, the mirrored objects do. An
    account without objects proves nothing: its first key may have been wrong. Then only a test key sends it.
    """
    account = operation.account
    if operation.may_have_run or not operations.of(operation).sends_money_out:
        return None
    if not _was_recorded_elsewhere(operation):
        return None
    earlier = Operation.objects.filter(
        account=account,
        state=OperationState.DONE,
        result_kind__in=(Kind.PAYMENT, Kind.PAYOUT, Kind.REFUND),
        created_at__lt=operation.created_at,
    )
    results = earlier.order_by("-created_at", "-pk").values_list("result_kind", "result_id")
    objects = list(results[: sync.COMPARED]) or sync.newest_objects(account, with_gone=True)
    is_same = sync.is_any_known(account, objects) if objects else conf.account(account).is_test
    return None if is_same else Verdict(OTHER_PROJECT)


def _find_same_by_user(operation: Operation) -> Verdict | None:
    """Have a person decide about the call of a program, such as a job, that a user has made shortly before."""
    same = None if operation.may_have_run else operations.of(operation).same_by_user(operation)
    known = None if same is None else same.first()
    if known is None:
        return None
    return Verdict(f"it was not sent: {permissions.actor_name(known.actor)} has asked for the same ({known.pk})")
