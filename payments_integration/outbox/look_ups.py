"""Look up what became of an operation: in the mirror, and at the provider by reading.

A single object that no other operation explains is the operation's result. A person decides about all others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from payments_integration import wakeup
from payments_integration.db.claims import ClaimLost
from payments_integration.exceptions import NoAnswer, PagingError, ProviderError, WireError
from payments_integration.models import Mirror, Operation, OperationState, StatusChange
from payments_integration.outbox import operations, outcomes
from payments_integration.outbox.outcomes import Claim
from payments_integration.sync import get_client

#: If look-ups have failed for this long since the first attempt, a person decides.
GIVE_UP_AFTER = timedelta(hours=48)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look-up means for an operation. With no more than a note, a person decides."""

    note: str
    #: The target is as the operation wanted it.
    took_effect: bool = False
    #: The only object that is certainly the operation's, from a list of the provider or from the mirror.
    result: Any = None
    #: The objects that may be its result.
    ids: tuple[str, ...] = ()

    @property
    def is_clear(self) -> bool:
        return self.took_effect or self.result is not None


def write_verdict(claim: Claim, verdict: Verdict) -> None:
    if verdict.took_effect:
        outcomes.happened(claim, verdict.note)
    elif verdict.result is None:
        outcomes.needs_person(claim, verdict.note)
    elif not link_result(claim, verdict):
        outcomes.needs_person(claim, f"{verdict.result.id} fits it, but belongs to another operation")


def link_result(claim: Claim, verdict: Verdict) -> bool:
    """Close the operation as the one that made the verdict's result. Returns False if another operation did."""
    found = verdict.result
    return outcomes.link(claim, found.id, verdict.note, resource=None if isinstance(found, Mirror) else found)


def resolve_by_reading(claim: Claim, write: Callable[[Claim, Verdict], None] = write_verdict) -> None:
    """Look an operation up at the provider, and ``write`` the outcome. It stays unknown if reading fails."""
    operation = claim.operation
    try:
        write(claim, _read_verdict(operation))
    except (ProviderError, NoAnswer, PagingError) as error:
        why = error.code if isinstance(error, ProviderError) else str(error)
        if operation.first_sent_at and timezone.now() - operation.first_sent_at > GIVE_UP_AFTER:
            outcomes.needs_person(claim, f"looking it up keeps failing: {why}")
        else:
            outcomes.unknown(claim, f"looking it up failed: {why}")
    except WireError as error:
        outcomes.needs_person(claim, f"what was found cannot be read: {error}")


def _read_verdict(operation: Operation) -> Verdict:
    finding = operations.of(operation).look_up(get_client(operation.account), operation)
    if isinstance(finding, operations.Candidates):
        return judged(operation, finding, without_operation(operation, finding))
    return Verdict(finding.note, took_effect=isinstance(finding, operations.Happened))


def judged(
    operation: Operation,
    found: operations.Candidates,
    free: list[Any],
    doubt: str = "but may have been made before it was sent",
) -> Verdict:
    """Judge the objects found. ``free``: made by no other operation. ``doubt``: why none is certain."""
    certain = _certain(operation, free)
    ids = tuple(item.id for item in certain or free)
    if not found.complete:
        return Verdict(f"there are more than {operations.MAX_SCANNED} objects to look through")
    if not free:
        return Verdict(operations.NOT_FOUND)
    if not certain:
        return Verdict(f"{_ids(free)} fits it, {doubt}", ids=ids)
    if len(certain) > 1:
        return Verdict(f"{len(certain)} objects fit it: {_ids(certain)}", ids=ids)
    if _has_rival(operation):
        return Verdict(f"{certain[0].id} fits it, and another operation whose outcome is open", ids=ids)
    return Verdict("found by looking it up", result=certain[0], ids=ids)


def link_if_found(operation: Operation) -> None:
    """Link the operation if exactly one object fits. Otherwise leave it, to be sent again or looked up later.

    Its key is still valid, so an object that may have been made before the request left is not linked.
    """
    as_it_was = {"attempts": operation.attempts, "next_attempt_at": operation.next_attempt_at}
    claim = outcomes.claim_to_resolve(operation, (OperationState.UNKNOWN,))
    if claim is None:
        return
    with suppress(ClaimLost):
        try:
            found = operations.of(operation).look_up(get_client(operation.account), operation)
            if isinstance(found, operations.Candidates) and found.complete and not _has_rival(operation):
                free = _certain(operation, without_operation(operation, found))
                if len(free) == 1 and outcomes.link(claim, free[0].id, "found among the listed", resource=free[0]):
                    wakeup.wake(operation.account)
                    return
        except Exception:
            claim.release(**as_it_was)
            raise
        claim.release(**as_it_was)


def without_operation(operation: Operation, found: operations.Candidates) -> list[Any]:
    """Return the candidates that no operation is linked to, and that no person has called another operation's."""
    linked = set(
        Operation.objects.filter(
            account=operation.account, operation=operation.operation, result_id__in=[item.id for item in found.items]
        ).values_list("result_id", flat=True)
    )
    linked.update(operation.other_objects)
    return [item for item in found.items if item.id not in linked]


def _certain(operation: Operation, items: list[Any]) -> list[Any]:
    """Return the items that are certainly the operation's. None of them was mirrored before its request left."""
    call = operations.of(operation)
    items = [item for item in items if call.is_certain(operation, item)]
    if not operation.may_have_run:
        return items
    known_before = StatusChange.objects.filter(
        account=operation.account,
        object_kind=call.kind,
        object_id__in=[item.id for item in items],
        recorded_at__lt=operation.first_sent_at or operation.created_at,
    )
    known = set(known_before.values_list("object_id", flat=True))
    return [item for item in items if item.id not in known]


def _ids(items: list[Any]) -> str:
    return ", ".join(item.id for item in items[:10])


def _has_rival(operation: Operation) -> bool:
    """Return True if another operation of open outcome may have made the same object."""
    return (
        Operation.objects.filter(
            account=operation.account,
            operation=operation.operation,
            state__in=(OperationState.UNKNOWN, OperationState.NEEDS_PERSON),
            may_have_run=True,
            target_id=operation.target_id,
            merchant_reference=operation.merchant_reference,
            amount=operation.amount,
            currency=operation.currency,
        )
        .exclude(pk=operation.pk)
        .exists()
    )
