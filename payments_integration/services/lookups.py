"""Finding out what became of an operation without sending it again.

For operations that are too old to repeat (the provider has forgotten the key) or were sent under another key
or address. Only one candidate that nothing else explains counts as found; everything else is for a person.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.utils import timezone

from payments_integration import projection, wire
from payments_integration.client import Client, get_client
from payments_integration.exceptions import NoAnswer, NotFound, PagingError, ProviderError
from payments_integration.models import Operation, OperationState
from payments_integration.services import outcomes, reads
from payments_integration.services.leases import Claim
from payments_integration.services.recipes import (
    CANCEL_PAYMENT,
    CANCEL_PAYOUT,
    CREATE_DEPOSIT_REFERENCE,
    CREATE_PAYMENT,
    CREATE_PAYOUT,
    CREATE_REFUND,
    DELETE_WEBHOOK_ENDPOINT,
    RECIPES,
    ROTATE_WEBHOOK_SECRET,
)

#: Objects that a look-up goes through at most; with more, a person has to look.
MAX_SCANNED = 1000
#: How far the provider's clock may be behind ours.
CLOCK_SLACK = timedelta(minutes=5)
#: When look-ups have failed for so long since the first sending, a person is told.
GIVE_UP_AFTER = timedelta(hours=48)

ItemT = TypeVar("ItemT")


@dataclass(slots=True)
class Candidates:
    """Objects that may be the result of an operation; ``complete``: there can be no others."""

    items: list[Any] = field(default_factory=list)
    complete: bool = True


def look_up(claim: Claim) -> None:
    """Resolve an operation by reading, and write the outcome; it stays unknown where reading fails."""
    operation = claim.operation
    try:
        _resolve(claim)
    except (ProviderError, NoAnswer, PagingError) as error:
        why = error.code if isinstance(error, ProviderError) else str(error)
        if operation.first_sent_at and timezone.now() - operation.first_sent_at > GIVE_UP_AFTER:
            outcomes.person(claim, f"looking it up keeps failing: {why}")
        else:
            outcomes.unknown(claim, f"looking it up failed: {why}")
    except wire.WireError as error:
        outcomes.person(claim, f"what was found cannot be taken in: {error}")


def _resolve(claim: Claim) -> None:
    operation = claim.operation
    if operation.operation in (CANCEL_PAYMENT, CANCEL_PAYOUT):
        _resolve_cancel(claim)
    elif operation.operation == ROTATE_WEBHOOK_SECRET:
        outcomes.superseded(claim)
    elif operation.operation == DELETE_WEBHOOK_ENDPOINT:
        _resolve_deletion(claim)
    elif operation.operation == CREATE_DEPOSIT_REFERENCE:
        outcomes.person(claim, "deposit references cannot be listed; look for it in the provider's dashboard")
    else:
        _resolve_creation(claim)


def _resolve_creation(claim: Claim) -> None:
    operation = claim.operation
    candidates = _candidates(get_client(operation.account), operation)
    linked = set(
        Operation.objects.filter(
            account=operation.account,
            operation=operation.operation,
            result_id__in=[item.id for item in candidates.items],
        ).values_list("result_id", flat=True)
    )
    free = [item for item in candidates.items if item.id not in linked]
    if not candidates.complete:
        outcomes.person(claim, f"there are more than {MAX_SCANNED} objects to look through")
    elif not free:
        outcomes.person(claim, "it was not found at the provider")
    elif len(free) > 1:
        outcomes.person(claim, f"{len(free)} objects fit it: {', '.join(item.id for item in free[:10])}")
    elif _has_rival(operation):
        outcomes.person(claim, f"{free[0].id} fits it, and another operation whose outcome is open")
    elif not outcomes.linked(claim, free[0].id, "found by looking it up", resource=free[0]):
        outcomes.person(claim, f"{free[0].id} fits it, but belongs to another operation")


def _resolve_cancel(claim: Claim) -> None:
    operation = claim.operation
    kind = RECIPES[operation.operation].kind
    try:
        row = reads.read(kind, operation.account, operation.target_id, background=True)
    except NotFound:
        outcomes.person(claim, "the provider does not know the object any more")
        return
    if row.status == row.Status.CANCELED:
        outcomes.finished_on_target(claim, "found canceled by looking it up")
    else:
        outcomes.person(claim, f"the object is {row.status}")


def _resolve_deletion(claim: Claim) -> None:
    operation = claim.operation
    answer = get_client(operation.account).webhook_endpoints.list(max_wait=reads.BACKGROUND_WAIT, background=True)
    projection.write_endpoints(
        operation.account, answer.data, answered_at=answer.answered_at, duration=answer.duration
    )
    if any(endpoint.id == operation.target_id for endpoint in answer.data):
        outcomes.person(claim, "the endpoint is still there")
    else:
        outcomes.deleted(claim)


def _candidates(client: Client, operation: Operation) -> Candidates:
    """What the provider lists that this operation may have made (create_webhook_endpoint: the last case)."""
    since = (operation.first_sent_at or operation.created_at) - CLOCK_SLACK
    wait, reference = reads.BACKGROUND_WAIT, operation.merchant_reference
    if operation.operation == CREATE_PAYMENT:
        payments = client.payments.list(
            merchant_reference=reference, created_from=since, max_wait=wait, background=True
        )
        return _scan(
            payments,
            since,
            lambda item: (
                item.merchant_reference == reference
                and item.flow != "deposit_reference"
                and _same_money(item, operation)
            ),
        )
    if operation.operation == CREATE_PAYOUT:
        payouts = client.payouts.list(merchant_reference=reference, max_wait=wait, background=True)
        return _scan(
            payouts,
            since,
            lambda item: (
                item.merchant_reference == reference and item.refund_id is None and _same_money(item, operation)
            ),
        )
    if operation.operation == CREATE_REFUND:
        refunds = client.refunds.list(payment_id=operation.target_id, max_wait=wait, background=True)
        return _scan(
            refunds,
            since,
            lambda item: item.payment_id == operation.target_id and _same_money(item, operation),
        )
    asked = operation.arguments
    endpoints = client.webhook_endpoints.list(max_wait=wait, background=True).data
    return Candidates(
        [
            item
            for item in endpoints
            if item.url == asked.get("url")
            and sorted(item.events) == sorted(asked.get("events", []))
            and (item.created_at is None or item.created_at >= since)
        ]
    )


def _scan(items: Iterable[Any], since: datetime, fits: Any) -> Candidates:
    """Those that fit, of a list that runs newest to oldest, back to ``since``."""
    found = Candidates()
    scanned = 0
    for item in itertools.islice(_until(items, since), MAX_SCANNED + 1):
        scanned += 1
        if fits(item):
            found.items.append(item)
    found.complete = scanned <= MAX_SCANNED
    return found


def _until(items: Iterable[ItemT], since: datetime) -> Iterator[ItemT]:
    return itertools.takewhile(lambda item: item.created_at >= since, items)  # type: ignore[attr-defined]


def _same_money(item: Any, operation: Operation) -> bool:
    return bool(item.amount == operation.amount and item.currency == operation.currency)


def _has_rival(operation: Operation) -> bool:
    """Whether another operation of open outcome could have made the same object."""
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
