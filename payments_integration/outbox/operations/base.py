"""Describe the provider's calls. One class per call says everything that the app knows about it.

Admin, API, permissions, limits and recovery ask the class: none of them compares names of operations. An ``Intent`` is
one validated call before it is recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, QuerySet

from payments_integration import conf
from payments_integration.client import Answer, Client
from payments_integration.enums import Kind
from payments_integration.exceptions import ProviderError, UnsendableRequest
from payments_integration.models import (
    MIRRORS,
    OPERATION_PREFIX,
    Mirror,
    Operation,
    OperationState,
    unknown_operations,
)
from payments_integration.models.operations import operation_id_for
from payments_integration.validation.attempt_key import is_of_any_account, is_of_one_call
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    from payments_integration.validation.validator import Json

#: If a handler's event is older, another ledger may have sent what the handler asks for, under a key that is
#: forgotten.
LATE_AFTER = timedelta(hours=23)
#: A look-up reads at most this many objects. With more, a person decides.
MAX_SCANNED = 1000
#: A look-up begins this long before the first attempt: our clock may have been wrong by hours.
SEARCH_BEFORE = timedelta(hours=48)

#: The note of a look-up that found no object.
NOT_FOUND = "it was not found at the provider"


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


@dataclass(frozen=True, slots=True)
class Candidates:
    """A look-up found these objects, newest first. Each may be the operation's result."""

    items: list[Any] = field(default_factory=list)
    #: False: the provider lists more objects than a look-up reads.
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Happened:
    """A look-up shows that the call took effect."""

    note: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """A look-up cannot decide. From ``look_up``: a person does. From ``find_forgotten``: it may be sent."""

    note: str


Finding = Candidates | Happened | Unclear


class ProviderCall:
    """One of the provider's calls that change something: a subclass of Creation, Change or Cancel.

    Subclasses are stateless; the registry holds one instance of each. What comes first is required. What follows is
    optional, and each comment gives the default.
    """

    # Every call

    #: The service function, and what ``Operation.operation`` stores.
    name: ClassVar[str]
    #: The operation in the words of the person who asks for it.
    label: ClassVar[StrOrPromise]
    #: The kind of object that it makes or changes.
    kind: ClassVar[Kind]

    def look_up(self, client: Client, operation: Operation) -> Finding:
        """Find out at the provider what became of the operation, without sending it again."""
        raise NotImplementedError

    # Given by Creation and Cancel

    def send(self, client: Client, operation: Operation, *, max_wait: float) -> Answer[Any]:
        """Send the recorded bytes under the recorded key. Waits up to ``max_wait`` seconds on 429."""
        raise NotImplementedError

    # Given by Creation and Change

    #: True if it makes a new object, False if it changes the target.
    creates: ClassVar[bool]

    def contradicts(self, operation: Operation, answer: Any) -> str:
        """Return why this object, of an answer or a mirror row, cannot be the operation's; "" if it can."""
        raise NotImplementedError

    # Optional: who may ask for it, and when

    #: The permission that staff need. Empty by default: nothing is checked.
    permission: ClassVar[str] = ""
    #: The kind of the object that ``Operation.target_id`` names. By default there is no target.
    target: ClassVar[Kind | None] = None
    #: Annotations of the target's row that the precondition reads. By default none.
    target_annotations: ClassVar[dict[str, Exists]] = {}
    #: What an approver reads first, with the keys who, at and amount. By default the page has a general sentence.
    approval_request: ClassVar[StrOrPromise] = ""

    def precondition(self, intent: Intent) -> Precondition | None:
        """Return what must hold when the intent is recorded. By default nothing."""
        return None

    def needs_approval(self, intent: Intent) -> bool:
        """Return True if a second person must approve it. Called when the amount is known. By default False."""
        return False

    def matches_request(self, operation: Operation, body: dict[str, Any]) -> bool:
        """Return True if the recorded request agrees with the operation. By default compares amount and currency."""
        return (body.get("amount"), body.get("currency")) == (operation.amount, operation.currency)

    #: True if a worker first makes sure that the call, recorded under another key or address, is sent to the same
    #: project. False by default: another project does not know the target, or loses no money.
    sends_money_out: ClassVar[bool] = False

    # Optional: what an answer or an object means

    #: True if a second request has no further effect, with any key. By default none is sent when the key may be
    #: forgotten.
    repeat_is_harmless: ClassVar[bool] = False
    #: True if the answer holds a signing secret, once; if it is missing, attention is called. False by default.
    answers_with_secret: ClassVar[bool] = False
    #: False for a deletion, which returns None. True by default: the call returns the object's row.
    leaves_object: ClassVar[bool] = True

    def refusal_shows_effect(self, error: ProviderError) -> bool:
        """Return True if a refusal means that the target already is as the call wants it. By default False."""
        return False

    def is_in_effect(self, row: Any) -> bool:
        """Return True if the object, as it was just read, is as the call wants it. By default True."""
        return True

    def is_certain(self, operation: Operation, item: Any) -> bool:
        """Return True if the only object that fits, and that no other operation made, is the operation's.

        By default True.
        """
        return True

    def was_made_before(self, operation: Operation, row: Any) -> bool:
        """Return True if another ledger may have made this object for the same intent, under its own id.

        By default False.
        """
        return False

    # Optional: other places to look

    def look_up_in_mirror(self, operation: Operation) -> Finding:
        """Look up as ``look_up`` does, as far as the mirror knows. By default it knows nothing."""
        return Unclear("the mirror does not show it")

    def find_forgotten(self, client: Client, operation: Operation) -> Finding:
        """Find out if it took effect although this ledger never sent it. Returns Unclear if it may be sent.

        A restored backup, or the ledger of another installation, does not know what was sent. By default it may be
        sent.
        """
        return Unclear("a second time does no harm")

    def may_be_a_repeat(self, intent: Intent) -> bool:
        """Return True if ``lost_results`` or ``same_by_user`` has any: a worker's look decides. By default False."""
        return False

    def lost_results(self, asked: Intent | Operation) -> QuerySet[Any] | None:
        """Return mirrored objects that a lost ledger may have made for the same call. By default it does no harm."""
        return None

    def same_by_user(self, asked: Intent | Operation) -> QuerySet[Operation] | None:
        """Return recent operations with which a user asked for what a program asks for. By default a program may."""
        return None

    # Optional: what follows. Each returns a further call, which is recorded in the same transaction; by default none.

    def after_answer(self, operation: Operation, answer: Any, *, earlier_may_have_run: bool) -> Intent | None:
        """Write what belongs to a successful answer."""
        return None

    def after_finding(self, operation: Operation, object_id: str) -> Intent | None:
        """Do likewise when the operation ends without its answer: by a look-up or a person."""
        return None

    def after_late_attempt(self, operation: Operation) -> Intent | None:
        """Follow up a request that may have been executed after another worker settled the operation."""
        return None


def _refuse_in_other_account(operation: Operation) -> None:
    """Raise UnsendableRequest if this call may have been sent through another account.

    The ledger has a key once per account. Each call is committed before it looks for the others, so two first clicks
    at once do not both send.
    """
    key = operation.idempotency_key
    same = {"operation": operation.operation, "idempotency_key": key}
    if is_of_any_account(key):
        same["merchant_reference"] = operation.merchant_reference
    elif not is_of_one_call(key):
        return
    sent = Operation.objects.filter(may_have_run=True, **same).exclude(account=operation.account)
    if sent.exclude(state__in=(OperationState.REJECTED, OperationState.CLOSED)).exists():
        raise UnsendableRequest("the same call was sent through another account")


class Creation(ProviderCall):
    creates = True

    def send(self, client: Client, operation: Operation, *, max_wait: float) -> Answer[Any]:
        _refuse_in_other_account(operation)
        sent: Answer[Any] = client.of(self.kind).create(
            operation.request, idempotency_key=operation.idempotency_key, max_wait=max_wait
        )
        return sent

    def contradicts(self, operation: Operation, answer: Any) -> str:
        if answer is None:
            return "the answer has no object"
        if operation.amount is not None and (answer.amount, answer.currency) != (operation.amount, operation.currency):
            return "the answer has another amount or currency"
        reference = getattr(answer, "merchant_reference", None)
        if reference and operation.merchant_reference and reference != operation.merchant_reference:
            return "the answer has another merchant reference"
        return ""

    def was_made_before(self, operation: Operation, row: Any) -> bool:
        if operation.amount is None or (row.amount, row.currency) != (operation.amount, operation.currency):
            return False
        return operation.merchant_reference == operation.pk and bool(unknown_operations([row.merchant_reference]))

    def look_up_in_mirror(self, operation: Operation) -> Finding:
        rows = self.mirrored(operation).filter(account=operation.account).order_by("-created_at")
        return self.candidates(operation, rows[: MAX_SCANNED + 1])  # no cursor of the server: poolers

    def find_forgotten(self, client: Client, operation: Operation) -> Finding:
        mirrored, listed = self.find_forgotten_in_mirror(operation), self.look_up(client, operation)
        found = [each for each in (mirrored, listed) if isinstance(each, Candidates)]
        items = {item.id: item for each in found for item in each.items}
        return Candidates(list(items.values()), complete=all(each.complete for each in found))

    def find_forgotten_in_mirror(self, operation: Operation) -> Finding:
        """Also find what another ledger made under its own reference: a late handler may ask for the same again."""
        finding = self.look_up_in_mirror(operation)
        if not isinstance(finding, Candidates):
            return finding
        if (lost := self.lost_results(operation)) is not None:
            older = lost.exclude(pk__in=[item.id for item in finding.items])
            finding = replace(finding, items=[*finding.items, *older[:MAX_SCANNED]])
        if operation.merchant_reference != operation.pk or not asked_late(operation):
            return finding
        rows = MIRRORS[self.kind]._default_manager.filter(
            # A shop with handlers that pay out has thousands of known ones.
            ~Exists(Operation.objects.filter(pk=OuterRef("merchant_reference"))),
            account=operation.account,
            merchant_reference__startswith=OPERATION_PREFIX,
            amount=operation.amount,
            currency=operation.currency,
            created_at__gte=sent_since(operation),
        ).order_by("-created_at")[: MAX_SCANNED + 1]  # fmt: skip
        scanned = list(rows)
        unknown = unknown_operations(row.merchant_reference for row in scanned)
        others = [row for row in scanned if row.merchant_reference in unknown]
        return Candidates([*finding.items, *others], complete=finding.complete and len(scanned) <= MAX_SCANNED)

    def is_certain(self, operation: Operation, item: Any) -> bool:
        reference = getattr(item, "merchant_reference", None)
        return not reference or bool(reference == operation.merchant_reference)

    def mirrored(self, operation: Operation) -> QuerySet[Any]:
        """Return the mirror rows that may be the operation's object."""
        rows: QuerySet[Any] = MIRRORS[self.kind]._default_manager.filter(
            merchant_reference=operation.merchant_reference
        )
        return rows

    def fits(self, operation: Operation, item: Any) -> bool:
        """Return True if a listed object has the operation's amount, currency and merchant reference."""
        return not self.contradicts(operation, item) and item.merchant_reference == operation.merchant_reference

    def candidates(self, operation: Operation, items: Iterable[Any]) -> Candidates:
        """Return the objects that fit, from a list that runs newest to oldest."""
        since = sent_since(operation)
        recent = takewhile(lambda item: item.created_at >= since, items)
        scanned = list(islice(recent, MAX_SCANNED + 1))
        fitting = [item for item in scanned[:MAX_SCANNED] if self.fits(operation, item)]
        return Candidates(fitting, complete=len(scanned) <= MAX_SCANNED)


class Change(ProviderCall):
    """A call that changes the object in its path."""

    creates = False

    def contradicts(self, operation: Operation, answer: Any) -> str:
        if answer is None:
            return "the answer has no object"
        return "" if answer.id == operation.target_id else "the answer is about another object"


def sent_since(operation: Operation) -> datetime:
    """Return the earliest time at which the provider may have made the object, however wrong our clock was."""
    sent_at: datetime = operation.first_sent_at or operation.created_at
    # The handler of an old event may have asked for it before, at the time of the event.
    return min(sent_at, operation.sent_after or sent_at, operation.caused_at or sent_at) - SEARCH_BEFORE


def asked_late(operation: Operation) -> bool:
    """Return True if a handler asked late after its event, when the provider may have forgotten an earlier call."""
    return operation.caused_at is not None and operation.created_at - operation.caused_at > LATE_AFTER


def reaches_approval_limit(amount: int | None, currency: str) -> bool:
    """Return True if this many minor units need a second person's approval (APPROVAL_LIMITS)."""
    limit = conf.current().APPROVAL_LIMITS.get(currency)
    return limit is not None and amount is not None and amount >= limit


_calls: dict[str, ProviderCall] = {}
#: Every call by its name, in the order in which people read them. Read-only.
CALLS: Mapping[str, ProviderCall] = MappingProxyType(_calls)


def register(*calls: ProviderCall) -> None:
    _calls.update({call.name: call for call in calls})


def get(name: str) -> ProviderCall | None:
    """Return the call of this name; None for a name that another version of the app stored."""
    return CALLS.get(name)


def of(operation: Operation) -> ProviderCall:
    """Return the operation's call. Raises KeyError for a call that another version of the app stored."""
    return CALLS[operation.operation]


def creating(kind: Kind) -> Collection[str]:
    """Return the names of the calls that make an object of this kind."""
    return [call.name for call in CALLS.values() if call.creates and call.kind == kind]
