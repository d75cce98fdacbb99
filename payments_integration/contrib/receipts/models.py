"""Store the receipts that are sent by mail."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.models.base import Row


class ReceiptState(models.TextChoices):
    #: A pass will send it. A payment that is paid adds the row, and a person may queue an ended one again. A mail
    #: that the server has certainly not taken comes back here to be retried. Next: SENDING.
    QUEUED = "queued", _("waiting to be sent")
    #: A pass is sending it. Committed before the mail server gets the mail, so that no other process sends it. Next:
    #: SENT, FAILED, SKIPPED, QUEUED for another attempt, or UNKNOWN.
    SENDING = "sending", _("being sent")
    #: The mail server has taken it. This is final, unless a person sends it again.
    SENT = "sent", _("sent")
    #: The attempt has not ended: the process died, or the mail server does not answer. A person may send it again.
    UNKNOWN = "unknown", _("outcome unknown")
    #: An attempt failed and is not repeated automatically: the mail server refused the mail for good or may have taken
    #: it, or another error came. A person may send it again.
    FAILED = "failed", _("failed")
    #: It was not sent, for a reason in ``Why``. A person may send it again.
    SKIPPED = "skipped", _("not sent")


class Why(models.TextChoices):
    """The reason why a receipt was not sent."""

    NO_ADDRESS = "no_address", _("the payment has no e-mail address, or it was erased")
    NOT_PAID = "not_paid", _("the payment is no longer paid")
    REFUNDED = "refunded", _("the payment was refunded in full")
    TOO_OLD = "too_old", _("it waited too long")


class ReceiptMail(Row):
    """The receipt of one payment, sent by mail at most once. It has no personal data: the payment has the address."""

    account: str = fields.ExactCharField(_("account"), max_length=64)
    payment_id: str = fields.ExactCharField(_("payment"), unique=True)
    state: str = fields.CharField(_("state"), max_length=16, choices=ReceiptState, default=ReceiptState.QUEUED)
    #: The reason why it failed or was not sent: the name of an error, or one of ``Why``.
    reason: str = fields.CharField(_("reason"), max_length=64, default="", blank=True)
    queued_at: datetime = fields.DateTimeField(_("queued at"), default=timezone.now)
    #: The time of the last attempt, which also identifies the attempt.
    tried_at: datetime | None = fields.DateTimeField(_("tried at"), null=True, blank=True)

    class Meta:
        verbose_name = _("receipt by mail")
        verbose_name_plural = _("receipts by mail")
        indexes = [
            # For the mails that are due, oldest first, and for the admin's list and its filters.
            models.Index(fields=["state", "queued_at", "id"], name="pr_receipt_by_state"),
            models.Index(fields=["account", "queued_at", "id"], name="pr_receipt_by_account"),
            models.Index(fields=["queued_at", "id"], name="pr_receipt_queued"),
        ]
        permissions = [("send_receiptmail", "Can send a receipt by mail again")]

    def __str__(self) -> str:
        return str(self.payment_id)
