"""Sending an operation that is committed and claimed, and judging what comes back (docs/operations.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import Error
from django.utils import timezone

from payments_integration import projection, wakeup, wire
from payments_integration.client import get_client
from payments_integration.exceptions import (
    NoAnswer,
    OperationClosed,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    UnsendableRequest,
)
from payments_integration.models import Operation, OperationState
from payments_integration.projection import Snapshot
from payments_integration.services import ledger, outcomes
from payments_integration.services.leases import CLOCK_SLACK, Claim, LeaseLost, fingerprint
from payments_integration.services.recipes import DELETE_WEBHOOK_ENDPOINT, RECIPES, contradiction

#: Seconds that an interactive call waits on 429 before it is closed.
INTERACTIVE_WAIT = 10.0
#: Jobs have another turn; they do not keep a worker waiting.
BACKGROUND_WAIT = 1.0
#: The provider keeps keys for 24 hours (spec, "Limits"); an hour is left for clocks and slow requests.
RESEND_FOR = timedelta(hours=23)

ABSENT = Snapshot(version=None, events=0)


@dataclass(frozen=True, slots=True)
class Sent:
    """What an attempt led to; the operation's state says which."""

    row: Any = None
    error: Exception | None = None


def send_now(operation: Operation) -> Any:
    """Send what ``ledger.record`` has just claimed, for a caller who waits; returns the mirror row.

    Raises the ProviderError of a refusal. Everything that leaves the outcome open becomes OutcomeUnknown.
    """
    try:
        sent = attempt(ledger.claim_of_new(operation), max_wait=INTERACTIVE_WAIT, close_when_limited=True)
        wakeup.wake(operation.account)
    except LeaseLost:
        # It took longer than the lease; whoever took over decides, and their outcome is the answer.
        try:
            operation.refresh_from_db()
        except Error as error:
            raise OutcomeUnknown(operation) from error
        return ledger.replay(operation)
    except Exception as error:
        # Between sending and saving. The lease stays until it runs out; then the operation is resumed.
        raise OutcomeUnknown(operation) from error
    if operation.state == OperationState.DONE:
        return sent.row
    if operation.state == OperationState.REJECTED and sent.error is not None:
        raise sent.error
    if operation.state == OperationState.CLOSED:
        raise OperationClosed(
            operation, f"operation {operation.pk} could not be sent; it did not happen"
        ) from sent.error
    raise OutcomeUnknown(operation) from sent.error


def attempt(claim: Claim, *, max_wait: float, close_when_limited: bool = False) -> Sent:
    """Send once under a claim and write the outcome.

    Raises LeaseLost, and whatever went wrong on our side.
    """
    operation = claim.operation
    recipe = RECIPES[operation.operation]
    before = projection.snapshot(recipe.kind, operation.account, operation.target_id) if recipe.on_target else ABSENT
    client = get_client(operation.account)
    # The last thing before the request: whoever stood still for longer must not send what others have settled.
    claim.ensure_time(max_wait)
    try:
        answer = recipe.send(client, operation, bytes(operation.body or b""), max_wait)
    except ProviderError as error:
        _judge(claim, error, close_when_limited=close_when_limited)
        return Sent(error=error)
    except NoAnswer as error:
        outcomes.unknown(claim, error)
        return Sent(error=error)
    except UnsendableRequest as error:
        outcomes.unsent(claim, error)
        return Sent(error=error)
    if wrong := contradiction(operation, answer.data):
        outcomes.unknown(claim, wrong)
        return Sent()
    try:
        return Sent(row=outcomes.done(claim, answer, before))
    except wire.WireError as error:
        # The object belongs to another account of ours: nothing that we can settle by ourselves.
        outcomes.unknown(claim, str(error))
        return Sent(error=error)


def may_resend(operation: Operation) -> bool:
    """Whether the same request may leave again: under the same key, where it went first, while the key is
    kept.
    """
    if operation.body is None:
        return False  # erased
    if not operation.may_have_run:
        return True
    if operation.sent_to != fingerprint(operation.account):
        return False
    if RECIPES[operation.operation].harmless:
        return True
    # A time well ahead of ours was written under a clock that was wrong: how old the key is, nobody knows.
    return (
        operation.first_sent_at is not None and -CLOCK_SLACK <= timezone.now() - operation.first_sent_at < RESEND_FOR
    )


def _judge(claim: Claim, error: ProviderError, *, close_when_limited: bool) -> None:
    """What an error envelope means for the operation."""
    gone = error.status_code == 404 and claim.operation.operation == DELETE_WEBHOOK_ENDPOINT
    if error.code == "idempotency_conflict":
        # Our key stands for another request there. Which one, and whether ours ran, only a person can find
        # out.
        outcomes.person(claim, "the provider knows this idempotency key for another request", error)
    elif claim.repeated and gone:
        outcomes.deleted(claim)
    elif claim.repeated or not _is_refusal(error):
        outcomes.unknown(claim, error)
    elif isinstance(error, RateLimited) and not close_when_limited:
        outcomes.due_again(claim, error)
    else:
        outcomes.rejected(claim, error)


def _is_refusal(error: ProviderError) -> bool:
    """Whether the provider says that it did not execute the request: a 4xx not about its own failing.

    A 409 is about the key, whatever its type says: another request under it runs or ran, perhaps ours.
    """
    if error.code == "idempotency_in_progress" or error.type in ("api_error", "idempotency_error"):
        return False
    return 400 <= error.status_code < 500 and error.status_code not in (408, 409)
