"""Sending an operation that is committed and claimed, and judging what comes back (docs/operations.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import Error
from django.utils import timezone

from payments_integration import projection, schemas, telemetry, wakeup
from payments_integration.client import INTERACTIVE_WAIT, Client, LatestAnswer, at_most, get_client
from payments_integration.exceptions import (
    NoAnswer,
    OperationClosed,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    UnsendableRequest,
)
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import ledger, operations, outcomes
from payments_integration.outbox.ledger import Claim, LeaseLost, fingerprint

#: The provider keeps keys for 24 hours (spec, "Limits"); an hour is left for slow requests.
RESEND_FOR = timedelta(hours=23)
#: A GET that only asks for the time may take this many seconds.
ASK_SECONDS = 5.0


class KeyExpired(Exception):
    """The provider may have forgotten the key: sent again, the request could be executed a second time."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of an attempt; the operation's state says which it was."""

    row: Any = None
    error: Exception | None = None


def latest_answer(account: str) -> LatestAnswer:
    """The provider's latest answer, whose ``Date`` is stored before a first attempt.

    Asks now if the last hour brought none. Raises NoAnswer or RateLimited. What is sent nevertheless has no ``Date``,
    and is never sent again.
    """
    client = get_client(account)
    latest = client.latest_answer() or _ask(client)
    projection.note_contact(account, latest.date)
    return latest


def send_now(operation: Operation) -> Any:
    """Send an operation that was just recorded and claimed, while the caller waits; returns the mirror row.

    Raises the ProviderError of a refusal. Everything that leaves the outcome open becomes OutcomeUnknown.
    """
    try:
        sent = attempt(ledger.claim_of_new(operation), max_wait=INTERACTIVE_WAIT, close_when_limited=True)
        wakeup.wake(operation.account)
    except LeaseLost:
        # It took longer than the lease, and another worker took over. That worker's outcome is the answer.
        try:
            operation.refresh_from_db()
        except Error as error:
            raise OutcomeUnknown(operation) from error
        return ledger.replay(operation)
    except Exception as error:
        # Between sending and saving. The operation is resumed when the lease has run out.
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

    Raises KeyExpired (nothing was sent, and the claim is kept), LeaseLost, and every error on our side.
    """
    operation, call = claim.operation, operations.of(claim.operation)
    before = projection.ABSENT
    if not call.creates:
        before = projection.snapshot(call.kind, operation.account, operation.target_id)
    client = get_client(operation.account)
    if claim.repeated and not call.repeat_is_harmless:
        try:
            date = _ask(client).date
        except (ProviderError, NoAnswer) as error:
            outcomes.unknown(claim, error)
            return Sent(error=error)
        if date is None or not _is_key_valid(operation, date):
            raise KeyExpired
    # The last step before the request: a process that stood still must not send what others have settled.
    claim.ensure_time(max_wait)
    try:
        return _send(client, claim, before, max_wait=max_wait, close_when_limited=close_when_limited)
    except LeaseLost:
        outcomes.late(claim)
        raise


def _send(
    client: Client, claim: Claim, before: projection.Snapshot, *, max_wait: float, close_when_limited: bool
) -> Sent:
    operation, call = claim.operation, operations.of(claim.operation)
    try:
        with telemetry.during(telemetry.Sending(operation, is_repeated=claim.repeated)):
            answer = call.send(client, operation, max_wait=max_wait)
    except ProviderError as error:
        _judge(claim, error, close_when_limited=close_when_limited)
        return Sent(error=error)
    except NoAnswer as error:
        if error.was_connected or claim.repeated:
            outcomes.unknown(claim, error)
        else:
            outcomes.not_connected(claim, error)
        return Sent(error=error)
    except UnsendableRequest as error:
        outcomes.unsent(claim, error)
        return Sent(error=error)
    if contradiction := call.contradicts(operation, answer.data):
        outcomes.unknown(claim, contradiction)
        return Sent()
    try:
        return Sent(row=outcomes.done(claim, answer, before))
    except schemas.WireError as error:
        # The object belongs to another account or operation; a worker cannot settle that.
        outcomes.unknown(claim, str(error))
        return Sent(error=error)


def may_resend(operation: Operation) -> bool:
    """Whether the same request may leave again: same key, same place, and the provider may still know the key.

    It sends no request. ``attempt`` reads the provider's clock before it sends again.
    """
    if operation.body is None:
        return False  # erased
    if not operation.may_have_run:
        return True
    if operation.sent_to != fingerprint(operation.account):
        return False
    if operations.of(operation).repeat_is_harmless:
        return True
    # Our clock may only shorten what the provider's allows.
    return (
        operation.sent_after is not None
        and operation.first_sent_at is not None
        and timezone.now() - operation.first_sent_at < RESEND_FOR
    )


def _is_key_valid(operation: Operation, date: datetime) -> bool:
    """Whether the provider still knows the key, by its own clock alone: ours may have been set since."""
    return operation.sent_after is not None and timedelta(0) <= date - operation.sent_after < RESEND_FOR


def _ask(client: Client) -> LatestAnswer:
    with at_most(ASK_SECONDS):
        return client.ask()


def _judge(claim: Claim, error: ProviderError, *, close_when_limited: bool) -> None:
    """What an error envelope means for the operation."""
    if error.code == "idempotency_conflict":
        # The key belongs to another request there. A person must find out which, and whether ours ran.
        outcomes.needs_person(claim, "the provider knows this idempotency key for another request", error)
    elif claim.repeated and operations.of(claim.operation).shows_effect(error):
        outcomes.happened(claim, "the provider says that it has taken effect")
    elif claim.repeated or not _is_refusal(error):
        outcomes.unknown(claim, error)
    elif isinstance(error, RateLimited) and not close_when_limited:
        outcomes.due_again(claim, error)
    else:
        outcomes.rejected(claim, error)


def _is_refusal(error: ProviderError) -> bool:
    """Whether the provider says that it did not execute the request: a 4xx that is not about its own failure.

    A 409 is always about the key: another request with it runs or ran, perhaps ours.
    """
    if error.code == "idempotency_in_progress" or error.type in ("api_error", "idempotency_error"):
        return False
    return 400 <= error.status_code < 500 and error.status_code not in (408, 409)
