"""The ledger of operations: committed before their request is sent, and kept for ever."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from payments_integration.dates import moment
from payments_integration.db import fields
from payments_integration.exceptions import NOT_CONNECTED, is_passing
from payments_integration.models.base import Claimable


class OperationState(models.TextChoices):
    #: Recorded and not sent: it was deferred, or an attempt was certainly not executed and no caller waited.
    #: ``resume_operations`` sends it: it becomes UNKNOWN. After ``SEND_WITHIN`` it becomes NEEDS_PERSON instead.
    DUE = "due", _("recorded, to be sent")
    #: Committed before its request leaves, so it may have been executed. An answer makes it DONE or REJECTED. A
    #: refusal of access or rate makes it CLOSED if a caller waits, otherwise DUE. Without an answer it is sent again
    #: under its key, later looked up: it becomes DONE, or NEEDS_PERSON if that is not clear.
    UNKNOWN = "unknown", _("sent, outcome not known yet")
    #: An answer, a look-up or a person showed that it took effect. ``result_id`` names the object. Final.
    DONE = "done", pgettext_lazy("operation", "done")
    #: The provider refused it, and no earlier attempt can have been executed. Final, unless an object shows that it
    #: was executed: then it becomes NEEDS_PERSON.
    REJECTED = "rejected", _("rejected by the provider")
    #: Not executed, and not sent again: a temporary refusal while a caller waited, no connection, an invalid
    #: request, an approver's refusal or a person's decision. Final, but if ``has_free_key``, the same call opens it
    #: again; otherwise an object does, as for REJECTED.
    CLOSED = "closed", _("closed without effect")
    #: The app cannot find out what happened, and ``attention`` was called. A person looks it up, sends it again or
    #: decides (``outbox.resolution``): it becomes DONE, REJECTED, CLOSED or UNKNOWN.
    NEEDS_PERSON = "needs_person", _("a person must decide")
    #: The amount reaches the approval limit. Nothing was sent. ``approve`` makes it UNKNOWN and sends it; ``reject``
    #: makes it CLOSED.
    AWAITING_APPROVAL = "awaiting_approval", _("waits for approval")


#: States in which the operation may still move money.
OPEN_OPERATION_STATES = frozenset(
    {OperationState.DUE, OperationState.UNKNOWN, OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL}
)


OPERATION_PREFIX = "op_"
_OPERATION_ID = OPERATION_PREFIX + "[0-9a-f]{32}"


def new_operation_id() -> str:
    return f"{OPERATION_PREFIX}{uuid.uuid4().hex}"


def operation_id_for(account: str, key: str) -> str:
    """Return the id of the operation under an idempotency key. ``account``: its fingerprint, ``conf.fingerprint``."""
    return OPERATION_PREFIX + hashlib.sha256(f"{account} {key}".encode()).hexdigest()[:32]


def operation_states(references: Iterable[str | None]) -> dict[str, str]:
    """Return the states of operations, by the merchant references that are ids of operations.

    The state is empty if this ledger does not have the operation. Another ledger sent it: this one before a backup was
    restored, or the ledger of another installation.
    """
    ids = {reference for reference in references if reference and re.fullmatch(_OPERATION_ID, reference)}
    known = dict(Operation.objects.filter(pk__in=ids).values_list("pk", "state")) if ids else {}
    return {each: known.get(each, "") for each in ids}


def unknown_operations(references: Iterable[str | None]) -> set[str]:
    """Return the merchant references that are ids of operations which this ledger does not have."""
    return {each for each, state in operation_states(references).items() if not state}


class Operation(Claimable):
    """One intent to change something at the provider, with all data that is needed to finish it after a crash."""

    progress: ClassVar[tuple[str, ...]] = ("attempts", "closed_at")

    id: str = fields.ExactCharField(primary_key=True, default=new_operation_id, max_length=40)
    account: str = fields.ExactCharField(_("account"), max_length=64)
    #: The name of the service function: create_payment, cancel_payout, …
    operation: str = fields.CharField(_("operation"), max_length=64)
    #: The caller's arguments, normalised, before defaults are filled in.
    arguments: dict[str, Any] = fields.JSONField(_("arguments"), default=dict)
    #: SHA-256 of the arguments that a repeated call must match; outlives an erasure.
    arguments_hash: str = fields.CharField(max_length=64)
    #: The object in the path (cancel, rotate, delete), or a refund's payment; otherwise empty.
    target_id: str = fields.ExactCharField(_("target"), default="", blank=True)
    #: The exact bytes of the request; null after an erasure, empty for a request without a body.
    body: bytes | None = fields.BinaryField(_("body"), null=True, default=b"")
    #: The amount of a payment, payout or refund in minor units, for limits and look-ups.
    amount: int | None = fields.BigIntegerField(_("amount"), null=True, blank=True)
    currency: str = fields.CharField(_("currency"), max_length=64, default="", blank=True)
    #: The merchant_reference that was sent. Look-ups search by it.
    merchant_reference: str = fields.ExactCharField(_("merchant reference"), default="", blank=True)
    idempotency_key: str = fields.ExactCharField(_("idempotency key"))
    #: Who requested it: a user's id and name, or a job's name; may be empty.
    actor: str = fields.CharField(_("actor"), max_length=255, default="", blank=True)
    #: The primary key of the user who requested it; empty if it was not a user.
    actor_id: str = fields.CharField(max_length=64, default="", blank=True, editable=False)
    #: SHA-256 of ``body`` when it was recorded. An approval is valid for these bytes only. Outlives an erasure.
    body_digest: str = fields.CharField(max_length=64, default="", blank=True, editable=False)
    #: The second person who approved it, if that was required; as in ``actor``.
    approved_by: str = fields.CharField(_("approved by"), max_length=255, default="", blank=True)
    approved_at: datetime | None = fields.DateTimeField(_("approved at"), null=True, blank=True)
    #: Recorded by ``defer`` in the caller's transaction.
    deferred: bool = fields.BooleanField(_("deferred"), default=False)
    #: The provider's time of the event or change whose handler made the call; null: no handler did.
    caused_at: datetime | None = fields.DateTimeField(null=True, blank=True, editable=False)

    state: str = fields.CharField(_("state"), max_length=32, choices=OperationState, default=OperationState.DUE)
    created_at: datetime = fields.DateTimeField(_("created at"), default=timezone.now)
    first_sent_at: datetime | None = fields.DateTimeField(_("first sent at"), null=True, blank=True)
    #: The first attempt left after this, by the provider's clock: the ``Date`` of the account's latest answer before
    #: it. Null if the provider sends none.
    sent_after: datetime | None = fields.DateTimeField(_("sent after, at the provider"), null=True, blank=True)
    last_sent_at: datetime | None = fields.DateTimeField(_("last sent at"), null=True, blank=True)
    #: When it is due; null: now.
    next_attempt_at: datetime | None = fields.DateTimeField(_("next attempt at"), null=True, blank=True)
    attempts: int = fields.PositiveIntegerField(_("attempts"), default=0)
    #: An earlier attempt may have been executed, so a later refusal does not prove that nothing happened.
    may_have_run: bool = fields.BooleanField(_("may have run"), default=False)
    #: A hash of the URL and API key of the first attempt: it is never repeated with others. Before that attempt, of
    #: the URL and key with which it was recorded.
    sent_to: str = fields.CharField(max_length=64, default="", blank=True)

    #: Ids of objects that seemed to be its result, but belong to others according to a person.
    other_objects: list[str] = fields.JSONField(default=list, blank=True, editable=False)
    #: The object that it created or changed.
    result_kind: str = fields.CharField(_("result"), max_length=64, default="", blank=True)
    result_id: str = fields.ExactCharField(_("result id"), default="", blank=True)
    #: The provider's refusal: status_code, type, code, message, param, request_id.
    error: dict[str, Any] | None = fields.JSONField(_("error"), null=True, blank=True)
    #: The reason for its state, and what a person decided or should know.
    note: str = fields.OwnTextField(_("note"), default="", blank=True)
    request_ids: list[str] = fields.JSONField(_("request ids"), default=list, blank=True)
    closed_at: datetime | None = fields.DateTimeField(_("closed at"), null=True, blank=True)
    get_state_display: Callable[[], str]

    class Meta:
        verbose_name = _("operation")
        verbose_name_plural = _("operations")
        constraints = [models.UniqueConstraint(fields=["account", "idempotency_key"], name="pi_operation_key")]
        indexes = [
            # The task that resumes operations; health counts open ones.
            models.Index(fields=["state", "next_attempt_at"], name="pi_operation_due"),
            # The open operations of an object; its history, erasure, and the search of admin and API.
            models.Index(fields=["target_id", "state"], name="pi_operation_target"),
            models.Index(fields=["result_id"], name="pi_operation_result"),
            # Look-ups, erasure, and the search of admin and API.
            models.Index(fields=["merchant_reference"], name="pi_operation_reference"),
            # The lists of admin and API: the default order, and each filter in that order.
            models.Index(fields=["created_at", "id"], name="pi_operation_created"),
            models.Index(fields=["state", "created_at", "id"], name="pi_operation_by_state"),
            models.Index(fields=["operation", "created_at", "id"], name="pi_operation_by_operation"),
            models.Index(fields=["account", "created_at", "id"], name="pi_operation_by_account"),
            # The admin's search, and its check for a key that another account has.
            models.Index(fields=["idempotency_key"], name="pi_operation_by_key"),
            # A customer's own objects in the API.
            models.Index(fields=["actor_id", "operation"], name="pi_operation_by_actor"),
        ]
        permissions = [
            ("approve_operation", "Can approve what another person asked for"),
            ("close_operation", "Can mark an operation as never happened"),
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def has_free_key(self) -> bool:
        """True if the call may be sent again under its key: closed by a temporary refusal, or without a connection.

        False for an erased request, which cannot be sent again.
        """
        if self.state != OperationState.CLOSED or self.body is None or not isinstance(self.error, dict):
            return False
        return self.error.get("type") == NOT_CONNECTED or is_passing(self.error)

    def with_note(self, text: str) -> str:
        """Return the note with another dated line, unless the last line says the same.

        Further lines of the text are indented, so that none of them looks like an entry.
        """
        text = "\n    ".join(text.splitlines())
        if self.note.endswith(f": {text}"):
            return self.note
        line = f"{moment(timezone.now())}: {text}"
        return f"{self.note}\n{line}".strip()

    @property
    def request(self) -> bytes:
        """The exact bytes of the request; empty for a call without a body, and after an erasure."""
        return bytes(self.body or b"")
