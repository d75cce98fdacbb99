"""Movements: what each change of the mirror did to the merchant's money. And the receipts that are sent by mail."""

from __future__ import annotations

from datetime import date, datetime

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.models.base import ObjectRef, Row
from payments_integration.money import format_money


class MovementKind(models.TextChoices):
    """The reason for a movement."""

    PAYMENT = "payment", _("payment")
    PAYMENT_FEE = "payment_fee", _("fee of a payment")
    REFUND = "refund", _("refund")
    CHARGEBACK = "chargeback", _("chargeback")
    PAYOUT = "payout", _("payout")
    PAYOUT_FEE = "payout_fee", _("fee of a payout")


class Movement(ObjectRef):
    """A change of the merchant's money that an object's state implies. Rows are never changed or deleted.

    The movements of an object add up to what its mirrored state implies: a new row is the difference.
    """

    kind: str = fields.CharField(_("kind"), max_length=16, choices=MovementKind)
    currency: str = fields.ExactCharField(_("currency"), max_length=64)
    #: Minor units. Positive: the merchant has more.
    amount: int = fields.BigIntegerField(_("amount"))
    #: The provider's clock.
    occurred_at: datetime = fields.DateTimeField(_("occurred at"))
    #: Our clock.
    recorded_at: datetime = fields.DateTimeField(_("recorded at"))
    #: The day of ``occurred_at`` in the site's time zone (TIME_ZONE).
    occurred_on: date = fields.DateField(_("occurred on"))
    #: The day on which it is in the journal: ``occurred_on``, unless that month was closed when it was recorded.
    booked_on: date = fields.DateField(_("booked on"))

    class Meta:
        verbose_name = _("movement")
        verbose_name_plural = _("movements")
        indexes = [
            # The sum of an object's movements.
            models.Index(fields=["account", "object_kind", "object_id"], name="pf_movement_object"),
            # The journal and the statement, of all accounts and of one; the admin's list.
            models.Index(fields=["booked_on", "id"], name="pf_movement_booked"),
            models.Index(fields=["account", "booked_on", "id"], name="pf_movement_by_account"),
            # What occurred in a closed month and was recorded later.
            models.Index(fields=["occurred_on"], name="pf_movement_occurred"),
        ]

    def __str__(self) -> str:
        return f"{self.object_id} {self.get_kind_display()} {format_money(self.amount, self.currency)}"

    @property
    def is_recorded_later(self) -> bool:
        """Whether its month was closed when it was recorded."""
        return self.booked_on != self.occurred_on


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
            models.Index(fields=["state", "queued_at", "id"], name="pf_receipt_by_state"),
            models.Index(fields=["account", "queued_at", "id"], name="pf_receipt_by_account"),
            models.Index(fields=["queued_at", "id"], name="pf_receipt_queued"),
        ]
        permissions = [("send_receiptmail", "Can send a receipt by mail again")]

    def __str__(self) -> str:
        return str(self.payment_id)
