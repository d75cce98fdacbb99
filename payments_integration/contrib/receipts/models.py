"""The receipts that are sent by mail."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.models.base import Row


class ReceiptState(models.TextChoices):
    QUEUED = "queued", _("waiting to be sent")
    #: Stored before the mail server gets the mail.
    SENDING = "sending", _("being sent")
    SENT = "sent", _("sent")
    #: The process died while it was being sent, or the mail server does not answer.
    UNKNOWN = "unknown", _("outcome unknown")
    FAILED = "failed", _("failed")
    #: There was a reason not to send it.
    SKIPPED = "skipped", _("not sent")


class Why(models.TextChoices):
    """Why a receipt was not sent."""

    NO_ADDRESS = "no_address", _("the payment has no e-mail address, or it was erased")
    NOT_PAID = "not_paid", _("the payment is no longer paid")
    REFUNDED = "refunded", _("the payment was refunded in full")
    TOO_OLD = "too_old", _("it waited too long")


class ReceiptMail(Row):
    """The receipt of one payment, sent by mail once at most. It has no personal data: the address is the payment's."""

    account: str = fields.ExactCharField(_("account"), max_length=64)
    payment_id: str = fields.ExactCharField(_("payment"), unique=True)
    state: str = fields.CharField(_("state"), max_length=16, choices=ReceiptState, default=ReceiptState.QUEUED)
    #: Why it failed or was not sent: the name of an error, or one of ``Why``.
    reason: str = fields.CharField(_("reason"), max_length=64, default="", blank=True)
    queued_at: datetime = fields.DateTimeField(_("queued at"), default=timezone.now)
    #: When it was last given to the mail server. It also names the attempt.
    tried_at: datetime | None = fields.DateTimeField(_("tried at"), null=True, blank=True)

    class Meta:
        verbose_name = _("receipt by mail")
        verbose_name_plural = _("receipts by mail")
        indexes = [
            # What is due, oldest first; the admin's list and its filters.
            models.Index(fields=["state", "queued_at", "id"], name="pr_receipt_by_state"),
            models.Index(fields=["account", "queued_at", "id"], name="pr_receipt_by_account"),
            models.Index(fields=["queued_at", "id"], name="pr_receipt_queued"),
        ]
        permissions = [("send_receiptmail", "Can send a receipt by mail again")]

    def __str__(self) -> str:
        return str(self.payment_id)
