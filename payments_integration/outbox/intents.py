"""Describe a validated call before it is recorded: what the ledger will hold and what the request will say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from django.core.exceptions import ValidationError

from payments_integration import conf
from payments_integration.models import Mirror, Operation
from payments_integration.models.operations import operation_id_for

if TYPE_CHECKING:
    from payments_integration.validation.validator import Json


class PreconditionFailed(ValidationError):
    """The object's state, the refundable rest or the balance forbids the call. Nothing was sent.

    The mirror may be behind, so it is refreshed once and the precondition is decided again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One call of a service function. The repr shows no arguments, because they hold personal data."""

    #: The name of the service function; ``@service`` fills it in.
    operation: str = ""
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
    #: The provider gets the operation's id as merchant_reference if the caller gave none.
    fills_reference: bool = False
    #: Empty: a new key for each call.
    idempotency_key: str = ""
    #: The ledger had no operation of this key a moment ago.
    key_is_new: bool = False
    actor: str = ""
    #: The primary key of the user who asked; empty if it was not a user.
    actor_id: str = ""
    #: Somebody else asked, in that user's session.
    is_borrowed: bool = False
    #: The operation, if it is already recorded: it waits for approval, or its key is free.
    operation_id: str = ""

    @property
    def new_id(self) -> str:
        """Its operation's id. A call under the same key after a restored backup has the same one."""
        return self.operation_id or operation_id_for(conf.fingerprint(self.account), self.idempotency_key)

    @property
    def merchant_reference(self) -> str:
        """What the request says; "" if it says nothing, or a new id with each call."""
        given: str = (self.body or {}).get("merchant_reference") or ""
        return given or (self.new_id if self.fills_reference and self.idempotency_key else "")


class Precondition:
    """What must hold when an intent is recorded."""

    #: It also applies to a deferred call, which cannot bring the mirror up to date.
    when_deferred: ClassVar[bool] = True

    def prepare(self) -> bool:
        """Read at the provider what the decision needs. Call outside transactions.

        Returns True if it read objects that open operations may have created. The caller then links them.
        """
        return False

    def decide(self, intent: Intent) -> Intent:
        """Check under a lock, in the recording transaction. May fill in the intent. Raises PreconditionFailed."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Read again everything that ``decide`` looks at. Call outside transactions."""

    def competitors(self) -> Iterable[Operation]:
        """Return open operations that may have created an object that was just read. They are linked to it first."""
        return ()
