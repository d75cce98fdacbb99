"""A validated call before it is recorded: what the ledger will hold and what will go on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from django.core.exceptions import ValidationError

from payments_integration.models import Mirror, Operation

if TYPE_CHECKING:
    from payments_integration.validation.validator import Json


class PreconditionFailed(ValidationError):
    """A call that the object's state, the refundable rest or the balance forbids; nothing was sent.

    The mirror may be behind, so it is refreshed once and the precondition is decided again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One call of a service function. The repr shows no argument: they hold personal data."""

    #: The name of the service function.
    operation: str
    account: str
    #: The caller's arguments, normalised, before defaults are filled in.
    arguments: Json = field(repr=False)
    #: The request as JSON; None for a call without a body.
    body: Json | None = field(default=None, repr=False)
    #: The object in the path, or a refund's payment.
    target_id: str = ""
    #: Its mirror row, if there is one.
    target: Mirror | None = field(default=None, repr=False, compare=False)
    #: Minor units.
    amount: int | None = None
    currency: str = ""
    #: Whether the provider gets the operation's id as merchant_reference if the caller gave none.
    fills_reference: bool = False
    #: Empty: a new key for each call.
    idempotency_key: str = ""
    #: The ledger had no operation of this key a moment ago.
    key_is_free: bool = False
    actor: str = ""
    #: The user's primary key, if a user asked.
    actor_id: str = ""
    #: The id of the operation, if it is recorded already and waits for approval.
    recorded: str = ""


class Precondition:
    """What must hold at the moment an intent is recorded."""

    #: Whether it also applies to a deferred call, which cannot bring the mirror up to date.
    when_deferred: ClassVar[bool] = True

    def prepare(self) -> bool:
        """Read at the provider what the decision needs. Outside transactions.

        Returns whether it read objects that open operations may have made; those are then linked.
        """
        return False

    def decide(self, intent: Intent) -> Intent:
        """Check under a lock, in the recording transaction; may fill in the intent. Raises PreconditionFailed."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Read again everything that ``decide`` looks at. Outside transactions."""

    def competitors(self) -> Iterable[Operation]:
        """Open operations that may have made an object that was just read. They are linked to it first."""
        return ()
