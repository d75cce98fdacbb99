"""The ledger of what we asked the provider to do. Committed before a request leaves; kept for ever."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.fields import ProviderIdField
from payments_integration.models.base import Row


class OperationState(models.TextChoices):
    """Where an operation stands. DONE, REJECTED and CLOSED are final."""

    DUE = "due", _("recorded, to be sent")
    UNKNOWN = "unknown", _("sent, outcome not known yet")
    DONE = "done", _("done")
    REJECTED = "rejected", _("rejected by the provider")
    CLOSED = "closed", _("closed without effect")
    NEEDS_PERSON = "needs_person", _("a person must decide")
    AWAITING_APPROVAL = "awaiting_approval", _("waits for approval")


#: States in which money may still move by this operation.
OPEN_OPERATION_STATES = frozenset(
    {
        OperationState.DUE,
        OperationState.UNKNOWN,
        OperationState.NEEDS_PERSON,
        OperationState.AWAITING_APPROVAL,
    }
)


def new_operation_id() -> str:
    return f"op_{uuid.uuid4().hex}"


class Operation(Row):
    """One intent to change something at the provider, with everything needed to finish it after a crash."""

    id = ProviderIdField(primary_key=True, default=new_operation_id, max_length=40)
    account = models.CharField(_("account"), max_length=64)
    #: The name of the service function: create_payment, cancel_payout, …
    operation = models.CharField(_("operation"), max_length=64)
    #: The caller's arguments, normalised, before defaults are filled in.
    arguments = models.JSONField(_("arguments"), default=dict)
    #: SHA-256 of the arguments that a repeated call must match; outlives an erasure.
    arguments_hash = models.CharField(max_length=64)
    #: The object in the path (cancel, rotate, delete), or a refund's payment; empty for the others.
    target_id = ProviderIdField(_("target"), default="", blank=True)
    #: The exact bytes of the request; null after an erasure, empty where the request has none.
    body = models.BinaryField(_("body"), null=True, default=b"")
    #: Of a payment, payout or refund, minor units; for limits and look-ups.
    amount = models.BigIntegerField(_("amount"), null=True, blank=True)
    currency = models.CharField(_("currency"), max_length=64, default="", blank=True)
    #: What the provider was told as merchant_reference; look-ups search by it.
    merchant_reference = models.CharField(_("merchant reference"), max_length=255, default="", blank=True)
    idempotency_key = ProviderIdField(_("idempotency key"))
    #: Who asked: a user's id and name, a job's name; empty: not said.
    actor = models.CharField(_("actor"), max_length=255, default="", blank=True)
    #: The primary key of the user who asked; empty where a job or nobody did.
    actor_id = models.CharField(max_length=64, default="", blank=True, editable=False)
    #: SHA-256 of ``body`` as it was recorded: what is approved is what was asked for. Outlives an erasure.
    body_digest = models.CharField(max_length=64, default="", blank=True, editable=False)
    #: Who let it go out, where it had to wait for a second person; as ``actor``.
    approved_by = models.CharField(_("approved by"), max_length=255, default="", blank=True)
    approved_at = models.DateTimeField(_("approved at"), null=True, blank=True)
    #: Recorded by ``defer`` within the caller's transaction.
    deferred = models.BooleanField(_("deferred"), default=False)

    state = models.CharField(_("state"), max_length=32, choices=OperationState, default=OperationState.DUE)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    first_sent_at = models.DateTimeField(_("first sent at"), null=True, blank=True)
    last_sent_at = models.DateTimeField(_("last sent at"), null=True, blank=True)
    #: When it is due; null: now.
    next_attempt_at = models.DateTimeField(_("next attempt at"), null=True, blank=True)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    #: An attempt left that may have been executed: a later refusal proves nothing.
    may_have_run = models.BooleanField(_("may have run"), default=False)
    #: Where and under which key it was first sent (a hash): it is never repeated elsewhere.
    sent_to = models.CharField(max_length=64, default="", blank=True)
    #: One sender at a time: held by whoever sends it now.
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.CharField(max_length=32, default="", blank=True)

    #: The object that it made or changed.
    result_kind = models.CharField(_("result"), max_length=64, default="", blank=True)
    result_id = ProviderIdField(_("result id"), default="", blank=True)
    #: The provider's refusal: status_code, type, code, message, param, request_id.
    error = models.JSONField(_("error"), null=True, blank=True)
    #: Why it is in its state, in words; what a person should know or decided.
    note = models.TextField(_("note"), default="", blank=True)
    request_ids = models.JSONField(_("request ids"), default=list, blank=True)
    closed_at = models.DateTimeField(_("closed at"), null=True, blank=True)

    class Meta:
        verbose_name = _("operation")
        verbose_name_plural = _("operations")
        constraints = [models.UniqueConstraint(fields=["account", "idempotency_key"], name="pi_operation_key")]
        indexes = [
            models.Index(fields=["state", "next_attempt_at"], name="pi_operation_due"),
            models.Index(fields=["target_id", "state"], name="pi_operation_target"),
            models.Index(fields=["result_id"], name="pi_operation_result"),
            models.Index(fields=["merchant_reference"], name="pi_operation_reference"),
            models.Index(fields=["created_at", "id"], name="pi_operation_created"),
            models.Index(fields=["state", "created_at", "id"], name="pi_operation_by_state"),
            models.Index(fields=["operation", "created_at", "id"], name="pi_operation_by_operation"),
            models.Index(fields=["account", "created_at", "id"], name="pi_operation_by_account"),
            models.Index(fields=["idempotency_key"], name="pi_operation_by_key"),
            # What somebody asked for through the API.
            models.Index(fields=["actor_id", "operation"], name="pi_operation_by_actor"),
        ]
        permissions = [
            ("approve_operation", "Can approve what another person asked for"),
            ("close_operation", "Can mark an operation as never happened"),
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.pk}"
