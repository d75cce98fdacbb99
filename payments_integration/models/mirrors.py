"""Mirrors of the provider's objects. Only ``projection`` writes them.

Fields keep the provider's names (spec, "Resources and their fields"); amounts are integers in minor units. Null
means that the provider left the field out or sent null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from payments_integration.enums import ActiveStatus, Kind, PaymentStatus, PayoutStatus, RefundStatus
from payments_integration.fields import ProviderIdField
from payments_integration.models.base import Row

#: No address is longer (RFC 5321), and no document's number.
MAX_EMAIL = 254
MAX_DOCUMENT = 64


class StateBy(models.TextChoices):
    """What wrote a row's present state."""

    EVENT = "event", _("an event")
    ANSWER = "answer", _("an answer to a request")


class Mirror(Row):
    """What every mirror row knows besides the provider's fields."""

    #: The ``object`` of the provider.
    kind: ClassVar[Kind]
    #: The provider's fields, one to one with the struct in ``wire``.
    mirrored: ClassVar[tuple[str, ...]]
    #: Those that hold, or may hold, personal data; emptied by erasure and left alone afterwards.
    personal: ClassVar[tuple[str, ...]] = ()

    account = models.CharField(_("account"), max_length=64)
    #: The provider's clock at this state: an event's created_at, or an answer's Date.
    state_at = models.DateTimeField(_("state at"))
    state_by = models.CharField(_("state by"), max_length=8, choices=StateBy)
    #: Seconds the request lasted whose answer this is: the state is from within them.
    state_span = models.FloatField(_("state span"), default=0)
    #: Grows by one with each write.
    version = models.PositiveBigIntegerField(_("version"), default=1)
    #: When an event or an answer last confirmed or changed the row (local clock).
    synced_at = models.DateTimeField(_("synced at"))
    #: The provider answered 404 for an object that it once told us of.
    gone_at = models.DateTimeField(_("gone at"), null=True, blank=True, editable=False)
    #: Personal data was erased; it is not taken in again.
    erased_at = models.DateTimeField(_("erased at"), null=True, blank=True, editable=False)
    #: Fields of the provider that this version does not know.
    extra = models.JSONField(_("further fields"), default=dict, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)

    @classmethod
    def derived(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Further fields that follow from the mirrored ones: what lists search by."""
        return {}

    @property
    def object_id(self) -> str:
        """The id under which events and operations name this object."""
        return str(self.pk)


def payer_email(payer: Any) -> str:
    """The address of a payer as it is searched for; empty where there is none, or nothing like one."""
    email = payer.get("email") if isinstance(payer, dict) else None
    return email.strip().lower()[:MAX_EMAIL] if isinstance(email, str) and len(email) <= MAX_EMAIL else ""


def payer_document(payer: Any) -> str:
    """The number of a payer's document as it is searched for: letters and digits alone, in upper case."""
    document = payer.get("document") if isinstance(payer, dict) else None
    number = document.get("number") if isinstance(document, dict) else None
    if not isinstance(number, str) or len(number) > MAX_DOCUMENT:
        return ""
    return "".join(filter(str.isalnum, number)).upper()[:MAX_DOCUMENT]


class Payment(Mirror):
    kind = Kind.PAYMENT
    mirrored = (
        "status",
        "amount",
        "amount_received",
        "fee",
        "net_amount",
        "currency",
        "country",
        "method_code",
        "method_family",
        "flow",
        "checkout_url",
        "refunded_amount",
        "merchant_reference",
        "payer",
        "next_action",
        "failure_reason",
        "metadata",
        "created_at",
        "expires_at",
        "succeeded_at",
    )
    personal = ("payer", "next_action", "metadata", "extra", "payer_email", "payer_document")

    id = ProviderIdField(primary_key=True)
    status = models.CharField(_("status"), max_length=64)
    amount = models.BigIntegerField(_("amount"))
    amount_received = models.BigIntegerField(_("amount received"))
    fee = models.BigIntegerField(_("fee"), null=True)
    net_amount = models.BigIntegerField(_("net amount"), null=True)
    currency = models.CharField(_("currency"), max_length=64)
    country = models.CharField(_("country"), max_length=64)
    method_code = models.CharField(_("method"), max_length=255)
    method_family = models.CharField(_("method family"), max_length=64)
    flow = models.CharField(_("flow"), max_length=64, null=True)
    checkout_url = models.TextField(_("checkout URL"), null=True)
    refunded_amount = models.BigIntegerField(_("refunded amount"), null=True)
    merchant_reference = models.CharField(_("merchant reference"), max_length=255, null=True)
    payer = models.JSONField(_("payer"), null=True)
    #: Of the payer, for searching: see ``payer_email`` and ``payer_document``.
    payer_email = models.CharField(_("payer's e-mail"), max_length=255, default="", editable=False)
    payer_document = models.CharField(_("payer's document"), max_length=64, default="", editable=False)
    next_action = models.JSONField(_("next action"), null=True)
    failure_reason = models.TextField(_("failure reason"), null=True)
    metadata = models.JSONField(_("metadata"), null=True)
    created_at = models.DateTimeField(_("created at"))
    expires_at = models.DateTimeField(_("expires at"), null=True)
    succeeded_at = models.DateTimeField(_("succeeded at"), null=True)

    Status = PaymentStatus

    class Meta:
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        indexes = [
            models.Index(fields=["created_at", "id"], name="pi_payment_created"),
            models.Index(fields=["account", "status", "created_at"], name="pi_payment_status"),
            models.Index(fields=["merchant_reference"], name="pi_payment_reference"),
            models.Index(fields=["status", "synced_at"], name="pi_payment_silent"),
            # The lists of the admin: each filter in the order of the list, and each search.
            models.Index(fields=["status", "created_at", "id"], name="pi_payment_by_status"),
            models.Index(fields=["currency", "created_at", "id"], name="pi_payment_by_currency"),
            models.Index(fields=["country", "created_at", "id"], name="pi_payment_by_country"),
            models.Index(fields=["method_family", "created_at", "id"], name="pi_payment_by_family"),
            models.Index(fields=["account", "created_at", "id"], name="pi_payment_by_account"),
            models.Index(fields=["payer_email"], name="pi_payment_email"),
            models.Index(fields=["payer_document"], name="pi_payment_document"),
        ]
        permissions = [
            ("refund_payment", "Can refund a payment"),
            ("cancel_payment", "Can cancel a payment"),
            ("view_personal_data", "Can see personal data of payers and recipients"),
        ]

    @classmethod
    def derived(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        payer = values.get("payer")
        return {"payer_email": payer_email(payer), "payer_document": payer_document(payer)}

    @property
    def refundable_amount(self) -> int:
        """Minor units received and not refunded yet, as far as the mirror knows; refunds in progress not counted."""
        return max(0, self.amount_received - (self.refunded_amount or 0))


class Payout(Mirror):
    kind = Kind.PAYOUT
    mirrored = (
        "status",
        "amount",
        "fee",
        "currency",
        "country",
        "method_code",
        "destination",
        "merchant_reference",
        "failure_reason",
        "refund_id",
        "metadata",
        "created_at",
        "succeeded_at",
    )
    personal = ("destination", "metadata", "extra")

    id = ProviderIdField(primary_key=True)
    status = models.CharField(_("status"), max_length=64)
    amount = models.BigIntegerField(_("amount"))
    fee = models.BigIntegerField(_("fee"), null=True)
    currency = models.CharField(_("currency"), max_length=64)
    country = models.CharField(_("country"), max_length=64)
    method_code = models.CharField(_("method"), max_length=255)
    destination = models.JSONField(_("destination"), null=True)
    merchant_reference = models.CharField(_("merchant reference"), max_length=255, null=True)
    failure_reason = models.TextField(_("failure reason"), null=True)
    #: Set when the payout executes a refund. Soft: the refund may come later, or never.
    refund = models.ForeignKey(
        "payments_integration.Refund",
        verbose_name=_("refund"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        related_name="payouts",
    )
    metadata = models.JSONField(_("metadata"), null=True)
    created_at = models.DateTimeField(_("created at"))
    succeeded_at = models.DateTimeField(_("succeeded at"), null=True)

    Status = PayoutStatus

    class Meta:
        verbose_name = _("payout")
        verbose_name_plural = _("payouts")
        indexes = [
            models.Index(fields=["created_at", "id"], name="pi_payout_created"),
            models.Index(fields=["account", "status", "created_at"], name="pi_payout_status"),
            models.Index(fields=["merchant_reference"], name="pi_payout_reference"),
            models.Index(fields=["status", "synced_at"], name="pi_payout_silent"),
            models.Index(fields=["status", "created_at", "id"], name="pi_payout_by_status"),
            models.Index(fields=["currency", "created_at", "id"], name="pi_payout_by_currency"),
            models.Index(fields=["country", "created_at", "id"], name="pi_payout_by_country"),
            models.Index(fields=["account", "created_at", "id"], name="pi_payout_by_account"),
        ]
        permissions = [("create_payout", "Can send a payout"), ("cancel_payout", "Can cancel a payout")]


class Refund(Mirror):
    kind = Kind.REFUND
    mirrored = ("status", "payment_id", "payout_id", "amount", "currency", "reason", "created_at")
    personal = ("reason", "extra")

    id = ProviderIdField(primary_key=True)
    status = models.CharField(_("status"), max_length=64)
    #: Soft: a refund may come before its payment.
    payment = models.ForeignKey(
        Payment,
        verbose_name=_("payment"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        related_name="refunds",
    )
    #: Set when the refund is executed as a payout. Soft.
    payout = models.ForeignKey(
        Payout,
        verbose_name=_("payout"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        related_name="refunds",
    )
    amount = models.BigIntegerField(_("amount"))
    currency = models.CharField(_("currency"), max_length=64)
    reason = models.TextField(_("reason"), null=True)
    created_at = models.DateTimeField(_("created at"))

    Status = RefundStatus

    class Meta:
        verbose_name = _("refund")
        verbose_name_plural = _("refunds")
        indexes = [
            models.Index(fields=["created_at", "id"], name="pi_refund_created"),
            models.Index(fields=["account", "status", "created_at"], name="pi_refund_status"),
            models.Index(fields=["status", "synced_at"], name="pi_refund_silent"),
            models.Index(fields=["status", "created_at", "id"], name="pi_refund_by_status"),
            models.Index(fields=["currency", "created_at", "id"], name="pi_refund_by_currency"),
            models.Index(fields=["account", "created_at", "id"], name="pi_refund_by_account"),
        ]


class DepositReference(Mirror):
    kind = Kind.DEPOSIT_REFERENCE
    mirrored = ("status", "country", "currency", "method_code", "merchant_reference", "details", "created_at")
    personal = ("details", "extra")

    id = ProviderIdField(primary_key=True)
    status = models.CharField(_("status"), max_length=64)
    country = models.CharField(_("country"), max_length=64)
    currency = models.CharField(_("currency"), max_length=64)
    method_code = models.CharField(_("method"), max_length=255)
    merchant_reference = models.CharField(_("merchant reference"), max_length=255, null=True)
    details = models.JSONField(_("details"))
    created_at = models.DateTimeField(_("created at"))

    Status = ActiveStatus

    class Meta:
        verbose_name = _("deposit reference")
        verbose_name_plural = _("deposit references")
        indexes = [
            models.Index(fields=["created_at", "id"], name="pi_deposit_created"),
            models.Index(fields=["merchant_reference"], name="pi_deposit_reference"),
            models.Index(fields=["status", "synced_at"], name="pi_deposit_silent"),
            models.Index(fields=["status", "created_at", "id"], name="pi_deposit_by_status"),
            models.Index(fields=["currency", "created_at", "id"], name="pi_deposit_by_currency"),
            models.Index(fields=["country", "created_at", "id"], name="pi_deposit_by_country"),
            models.Index(fields=["account", "created_at", "id"], name="pi_deposit_by_account"),
        ]


class Balance(Mirror):
    """One row per account and currency; the provider gives balances no id."""

    kind = Kind.BALANCE
    mirrored = ("currency", "available", "pending", "reserve", "hold", "debt", "updated_at")

    currency: models.CharField[str, str] = ProviderIdField(_("currency"), max_length=64)
    available = models.BigIntegerField(_("available"))
    pending = models.BigIntegerField(_("pending"))
    reserve = models.BigIntegerField(_("reserve"))
    hold = models.BigIntegerField(_("hold"))
    debt = models.BigIntegerField(_("debt"))
    updated_at = models.DateTimeField(_("updated at"), null=True)

    class Meta:
        verbose_name = _("balance")
        verbose_name_plural = _("balances")
        constraints = [models.UniqueConstraint(fields=["account", "currency"], name="pi_balance_account_currency")]

    def __str__(self) -> str:
        return f"{self.account} {self.currency}"

    @property
    def object_id(self) -> str:
        return self.currency


class WebhookEndpoint(Mirror):
    """An endpoint and, where we made or rotated it, its secret (encrypted)."""

    kind = Kind.WEBHOOK_ENDPOINT
    mirrored = ("url", "events", "status", "created_at")

    id = ProviderIdField(primary_key=True)
    url = models.TextField(_("URL"))
    events = models.JSONField(_("events"))
    status = models.CharField(_("status"), max_length=64)
    created_at = models.DateTimeField(_("created at"), null=True)
    secret_token = models.TextField(editable=False, default="", blank=True)
    secret_since = models.DateTimeField(_("secret since"), null=True, editable=False)
    #: After a rotation the old secret stays valid 24 hours (spec, "Webhook endpoints").
    previous_secret_token = models.TextField(editable=False, default="", blank=True)
    previous_secret_until = models.DateTimeField(_("previous secret valid until"), null=True, editable=False)
    deleted_at = models.DateTimeField(_("deleted at"), null=True, editable=False)

    Status = ActiveStatus

    class Meta:
        verbose_name = _("webhook endpoint")
        verbose_name_plural = _("webhook endpoints")
        indexes = [models.Index(fields=["account", "status"], name="pi_endpoint_account")]
        permissions = [
            ("manage_webhookendpoint", "Can create and delete webhook endpoints"),
            ("rotate_webhookendpoint", "Can rotate a webhook secret"),
        ]

    def __repr__(self) -> str:
        return f"<WebhookEndpoint: {self.pk}>"


#: What an erasure leaves in a field that cannot be null.
EMPTY_VALUES: dict[str, Any] = {"extra": {}, "details": {}, "payer_email": "", "payer_document": ""}

#: Every mirror that has the provider's id, by its kind. Locks are taken in this order.
MIRRORS: dict[str, type[Any]] = {
    Kind.PAYMENT: Payment,
    Kind.PAYOUT: Payout,
    Kind.REFUND: Refund,
    Kind.DEPOSIT_REFERENCE: DepositReference,
    Kind.BALANCE: Balance,
    Kind.WEBHOOK_ENDPOINT: WebhookEndpoint,
}
