"""Send an operation that is committed and claimed, and judge what comes back (docs/operations.md)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from payments_integration import conf, projection, schemas, telemetry, wakeup
from payments_integration.client import INTERACTIVE_WAIT, Answer, Client, LatestAnswer, at_most, before_sending
from payments_integration.db.claims import CLOCK_SLACK, ClaimLost
from payments_integration.exceptions import (
    NoAnswer,
    OperationClosed,
    OutcomeUnknown,
    ProviderError,
    UnsendableRequest,
    is_passing,
    is_refusal,
    not_connected,
)
from payments_integration.models import Operation, OperationState
from payments_integration.outbox import operations, outcomes
from payments_integration.outbox.outcomes import Claim, ClaimTooShort
from payments_integration.sync import get_client

#: The provider keeps keys for 24 hours (spec, "Limits"); an hour is left for slow requests.
RESEND_FOR = timedelta(hours=23)
#: A GET that only asks for the time may take this many seconds.
ASK_SECONDS = 5.0


class KeyExpired(Exception):
    """The provider may have forgotten the key. Sent again, the request could be executed a second time."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of an attempt. The operation's state says which it was."""

    row: Any = None
    error: Exception | None = None
    #: False if it left nothing to dispatch, to read or to send.
    leaves_work: bool = True


def latest_answer(client: Client) -> LatestAnswer:
    """Return the provider's latest answer to an account, whose ``Date`` is stored before a first attempt.

    Asks now if the last hour brought none. Raises NoAnswer or RateLimited. An operation that is sent without a
    ``Date`` is never sent again.
    """
    latest = client.latest_answer() or _ask(client)
    projection.note_contact(client.account.alias, latest.date, proves_key=latest.is_success)
    return latest


def send_now(operation: Operation, client: Client) -> Any:
    """Send an operation that was just recorded and claimed, while the caller waits. Returns the mirror row.

    Raises the ProviderError of a refusal, and NoAnswer if there was no connection. Any other error, such as one
    between sending and saving, leaves the outcome open, and ``ledger`` turns it into OutcomeUnknown. The
    operation is resumed when the claim has ended.
    """
    # The commit that recorded the operation also claimed it.
    claim = Claim(operation, operation.claim_token, earlier_may_have_run=False)
    try:
        sent = attempt(claim, client, max_wait=INTERACTIVE_WAIT, caller_waits=True)
        if sent.leaves_work:
            wakeup.wake(operation.account)
    except ClaimLost:
        # It outlasted the claim, and another worker took over. That worker's outcome is the answer.
        operation.refresh_from_db()
        return outcomes.outcome_of(operation)
    if operation.state == OperationState.DONE:
        return sent.row
    if isinstance(sent.error, UnsendableRequest):
        message = f"operation {operation.pk} could not be sent; it did not happen"
        raise OperationClosed(operation, message) from sent.error
    if operation.has_free_key and isinstance(sent.error, NoAnswer):
        raise not_connected(str(sent.error)) from sent.error
    if operation.state in (OperationState.REJECTED, OperationState.CLOSED) and sent.error is not None:
        raise sent.error
    raise OutcomeUnknown(operation, sent.error) from sent.error


def attempt(claim: Claim, client: Client, *, max_wait: float, caller_waits: bool = False) -> Sent:
    """Send once under a claim and write the outcome.

    ``caller_waits``: the caller gets the error, so an attempt that was not executed is closed, not sent later.

    Raises KeyExpired (nothing was sent, and the claim is kept), ClaimLost, and every error on our side.
    """
    operation, call = claim.operation, operations.of(claim.operation)
    before = projection.ABSENT
    if not call.creates:
        before = projection.snapshot(call.kind, operation.account, operation.target_id)
    if claim.earlier_may_have_run and not call.repeat_is_harmless:
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
        return _send(client, claim, call, before, max_wait=max_wait, caller_waits=caller_waits)
    except ClaimTooShort:
        raise  # nothing was sent
    except ClaimLost:
        outcomes.late(claim)
        raise


def _send(
    client: Client,
    claim: Claim,
    call: operations.ProviderCall,
    before: projection.Snapshot,
    *,
    max_wait: float,
    caller_waits: bool,
) -> Sent:
    operation = claim.operation
    try:
        # Connecting takes time as well. The claim must last for the whole exchange when the first byte leaves.
        with (
            telemetry.during(telemetry.Sending(operation, is_repeated=claim.earlier_may_have_run)),
            before_sending(claim.ensure_lasts),
        ):
            answer = call.send(client, operation, max_wait=max_wait)
    except ProviderError as error:
        _judge(_of_exchange(claim, error), error, caller_waits=caller_waits)
        return Sent(error=error)
    except NoAnswer as error:
        claim = _of_exchange(claim, error)
        if error.was_connected or claim.earlier_may_have_run:
            outcomes.unknown(claim, error)
        elif caller_waits:
            outcomes.closed(claim, error)
        else:
            outcomes.due(claim, error)
        return Sent(error=error)
    except UnsendableRequest as error:
        if claim.earlier_may_have_run:
            outcomes.needs_person(claim, f"it cannot be sent again: {error}")
        else:
            outcomes.closed(claim, error)
        return Sent(error=error)
    claim = _of_exchange(claim, answer)
    if contradiction := call.contradicts(operation, answer.data):
        outcomes.unknown(claim, contradiction)
        return Sent()
    try:
        row, leaves_work = outcomes.done(claim, answer, before)
        return Sent(row=row, leaves_work=leaves_work)
    except schemas.WireError as error:
        # The object belongs to another account or operation. A worker cannot settle that.
        outcomes.unknown(claim, str(error))
        return Sent(error=error)


def _of_exchange(claim: Claim, exchange: Answer[Any] | ProviderError | NoAnswer) -> Claim:
    """Return the claim for judging an answer or error. A request that the client repeated is a second attempt."""
    return dataclasses.replace(claim, earlier_may_have_run=True) if exchange.was_repeated else claim


def may_resend(operation: Operation) -> bool:
    """Return True if the same request may leave again: same key, same place, and the provider may still know the key.

    Sends no request. ``attempt`` reads the provider's clock before it sends again.
    """
    if operation.body is None:
        return False  # erased
    if not operation.may_have_run:
        return True
    if operation.sent_to != conf.fingerprint(operation.account):
        return False
    if operations.of(operation).repeat_is_harmless:
        return True
    # Our clock may only shorten the time that the provider's clock allows.
    return (
        operation.sent_after is not None
        and operation.first_sent_at is not None
        and timezone.now() - operation.first_sent_at < RESEND_FOR
    )


def is_key_known(operation: Operation) -> bool:
    """Return True if the provider knows the key of a refused attempt, supposing that it keeps the keys of these.

    Asks for the provider's time. Raises NoAnswer or RateLimited.
    """
    date = _ask(get_client(operation.account)).date
    return date is not None and _is_key_valid(operation, date)


def _is_key_valid(operation: Operation, date: datetime) -> bool:
    """Return True if the provider still knows the key, by its own clock alone: ours may have been set since."""
    # Two servers of the provider may differ by a little: a slightly negative age counts as 0.
    return operation.sent_after is not None and -CLOCK_SLACK <= date - operation.sent_after < RESEND_FOR


def _ask(client: Client) -> LatestAnswer:
    with at_most(ASK_SECONDS):
        return client.ask()


def _judge(claim: Claim, error: ProviderError, *, caller_waits: bool) -> None:
    """Decide what an error envelope means for the operation."""
    operation = claim.operation
    if error.code == "idempotency_conflict" and not claim.earlier_may_have_run and operation.attempts > 1:
        # The provider keeps the key of an attempt that it refused, for other arguments than the present ones.
        outcomes.rejected(claim, error)
    elif error.code == "idempotency_conflict":
        # The key belongs to another request there. A person must find out which, and if ours ran.
        outcomes.needs_person(claim, "the provider knows this idempotency key for another request", error)
    elif claim.earlier_may_have_run and operations.of(operation).refusal_shows_effect(error):
        outcomes.happened(claim, "the provider says that it has taken effect")
    elif claim.earlier_may_have_run or not is_refusal(error):
        outcomes.unknown(claim, error)
    elif is_passing(error.fields()):
        # Access or rate: the same call succeeds once that is mended.
        (outcomes.closed if caller_waits else outcomes.due)(claim, error)
    else:
        outcomes.rejected(claim, error)
