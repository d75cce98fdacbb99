"""Mirrors of the provider's objects. Only ``projection`` writes them.

Fields keep the provider's names (spec, "Resources and their fields"). Amounts are integers in minor units. Null means
that the provider omitted the field or sent null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from django.db import models
from django.db.models import OuterRef, QuerySet, Subquery, Sum, Value
from django.utils.functional import classproperty
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.db.transactions import as_committed
from payments_integration.enums import (
    NEVER_REFUNDED_STATUSES,
    VOID_REFUND_STATUSES,
    ActiveStatus,
    DepositReferenceStatus,
    Kind,
    PaymentStatus,
    PayoutStatus,
    RefundStatus,
)
from payments_integration.models.base import PrimaryManager, Row
from payments_integration.models.operations import OPEN_OPERATION_STATES, Operation, OperationState

#: The longest e-mail address (RFC 5321), and the longest document number that is searched for.
MAX_EMAIL = 254
MAX_DOCUMENT = 64


class StateBy(models.TextChoices):
    """What brought a row's present state."""

    EVENT = "event", _("an event")
    ANSWER = "answer", _("an answer to a request")


class Mirror(Row):
    """The fields that all mirrors have in addition to the provider's."""

    #: The provider's ``object``.
    kind: ClassVar[Kind]
    #: Fields that may hold personal data. An erasure empties them, and they stay empty.
    personal: ClassVar[tuple[str, ...]] = ()
    progress: ClassVar[tuple[str, ...]] = ("version", "erased_at")

    account: str = fields.ExactCharField(_("account"), max_length=64)
    #: The provider's time of this state: the ``created_at`` of an event, or the ``Date`` of an answer.
    state_at: datetime = fields.DateTimeField(_("state at"))
    state_by: str = fields.CharField(_("state by"), max_length=8, choices=StateBy)
    #: How long the request took that brought this state: it was read at most this many seconds before ``state_at``.
    #: Null: an event brought it, or an answer without a credible time.
    answer_seconds: float | None = fields.FloatField(_("answer seconds"), null=True)
    #: Counts the writes.
    version: int = fields.PositiveBigIntegerField(_("version"), default=1)
    synced_at: datetime = fields.DateTimeField(_("synced at"))
    #: The provider answered 404 for the object, or no longer listed the balance or endpoint, at this time.
    gone_at: datetime | None = fields.DateTimeField(_("gone at"), null=True, blank=True, editable=False)
    #: When its personal data was erased. That data is not stored again.
    erased_at: datetime | None = fields.DateTimeField(_("erased at"), null=True, blank=True, editable=False)
    #: Fields of the provider that this version of the app does not know.
    extra: dict[str, Any] = fields.JSONField(_("further fields"), default=dict, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)

    @classproperty
    def mirrored(cls) -> tuple[str, ...]:  # noqa: N805  (of the class)
        """Return the provider's fields: the columns that the struct in ``schemas`` has too."""
        # Imported here: every process imports the models, and many need no msgspec.
        from payments_integration import schemas  # noqa: PLC0415

        return schemas.MIRRORED[cls.kind]

    @classmethod
    def derived(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the values of further columns from the mirrored fields, for searches."""
        return {}

    @property
    def object_id(self) -> str:
        """The object's id in events and operations."""
        return str(self.pk)


def payer_email(payer: Any) -> str:
    """Return a payer's e-mail address in the form that searches use; empty if there is none."""
    email = payer.get("email") if isinstance(payer, dict) else None
    return email.strip().lower()[:MAX_EMAIL] if isinstance(email, str) and len(email) <= MAX_EMAIL else ""


def payer_document(payer: Any) -> str:
    """Return a payer's document number in the form that searches use: letters and digits only, in upper case."""
    document = payer.get("document") if isinstance(payer, dict) else None
    number = document.get("number") if isinstance(document, dict) else None
    if not isinstance(number, str) or len(number) > MAX_DOCUMENT:
        return ""
    return "".join(filter(str.isalnum, number)).upper()[:MAX_DOCUMENT]


class Payment(Mirror):
    """A pay-in (spec, "Payment")."""

    kind = Kind.PAYMENT
    personal = ("payer", "next_action", "failure_reason", "metadata", "extra", "payer_email", "payer_document")

    #: The provider's id.
    id: str = fields.ExactCharField(primary_key=True)
    #: See ``Payment.Status``; a value that this version does not know is kept.
    status: str = fields.CharField(_("status"), max_length=64)
    #: Asked for, in minor units.
    amount: int = fields.BigIntegerField(_("amount"))
    #: Received so far, in minor units.
    amount_received: int = fields.BigIntegerField(_("amount received"))
    #: On the received amount, in minor units.
    fee: int | None = fields.BigIntegerField(_("fee"), null=True)
    #: ``amount_received`` minus ``fee``.
    net_amount: int | None = fields.BigIntegerField(_("net amount"), null=True)
    #: Its ISO code.
    currency: str = fields.CharField(_("currency"), max_length=64)
    #: Its ISO code.
    country: str = fields.CharField(_("country"), max_length=64)
    #: A ``code`` of ``services.list_payment_methods``.
    method_code: str = fields.CharField(_("method"), max_length=255)
    #: card, bank_redirect, bank_transfer, wallet, cash or deposit_reference.
    method_family: str = fields.CharField(_("method family"), max_length=64)
    #: hosted, s2s or deposit_reference.
    flow: str | None = fields.CharField(_("flow"), max_length=64, null=True)
    #: The provider's checkout page, in the hosted flow.
    checkout_url: str | None = fields.TextField(_("checkout URL"), null=True)
    #: Refunded so far, in minor units. It changes without an event of the payment.
    refunded_amount: int | None = fields.BigIntegerField(_("refunded amount"), null=True)
    #: Your order's id.
    merchant_reference: str | None = fields.ExactCharField(_("merchant reference"), null=True)
    #: ``{name, email, phone, document, ip, device_id}``; personal data.
    payer: dict[str, Any] | None = fields.JSONField(_("payer"), null=True)
    #: For searches: see the functions ``payer_email`` and ``payer_document``.
    payer_email: str = fields.CharField(_("payer's e-mail"), max_length=255, default="", editable=False)
    payer_document: str = fields.CharField(_("payer's document"), max_length=64, default="", editable=False)
    #: What the payer must do next: ``next_action.parse`` reads it.
    next_action: dict[str, Any] | None = fields.JSONField(_("next action"), null=True)
    #: Why it failed, as the provider says it.
    failure_reason: str | None = fields.TextField(_("failure reason"), null=True)
    #: Your texts by name, returned unchanged.
    metadata: dict[str, Any] | None = fields.JSONField(_("metadata"), null=True)
    #: The provider's clock, as all times of the object.
    created_at: datetime = fields.DateTimeField(_("created at"))
    #: When the payer can no longer pay.
    expires_at: datetime | None = fields.DateTimeField(_("expires at"), null=True)
    #: When it was paid.
    succeeded_at: datetime | None = fields.DateTimeField(_("succeeded at"), null=True)

    refunds: PrimaryManager[Refund]

    Status = PaymentStatus

    class Meta:
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        indexes = [
            # Look-ups of operations and checkouts; orders; the search of admin and API.
            models.Index(fields=["merchant_reference", "account", "created_at", "id"], name="pi_payment_reference"),
            # Reconciliation: open objects that have been silent for too long.
            models.Index(fields=["status", "synced_at"], name="pi_payment_silent"),
            # The lists of admin and API: the default order, each filter in that order, and each search of the admin.
            models.Index(fields=["created_at", "id"], name="pi_payment_created"),
            models.Index(fields=["succeeded_at", "id"], name="pi_payment_succeeded"),
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
        """Minor units that can still be refunded, as far as the mirror knows. Takes two queries."""
        return max(0, refundable_rest(self))


class Payout(Mirror):
    """Money out to a bank account (spec, "Payout")."""

    kind = Kind.PAYOUT
    personal = ("destination", "failure_reason", "metadata", "extra")

    #: The provider's id.
    id: str = fields.ExactCharField(primary_key=True)
    #: See ``Payout.Status``.
    status: str = fields.CharField(_("status"), max_length=64)
    #: What the recipient gets, in minor units.
    amount: int = fields.BigIntegerField(_("amount"))
    #: Reserved on top of the amount, in minor units.
    fee: int | None = fields.BigIntegerField(_("fee"), null=True)
    #: Its ISO code.
    currency: str = fields.CharField(_("currency"), max_length=64)
    #: Its ISO code.
    country: str = fields.CharField(_("country"), max_length=64)
    #: A ``code`` of ``services.list_payment_methods``.
    method_code: str = fields.CharField(_("method"), max_length=255)
    #: The bank account; personal data.
    destination: dict[str, Any] | None = fields.JSONField(_("destination"), null=True)
    #: Your id for it.
    merchant_reference: str | None = fields.ExactCharField(_("merchant reference"), null=True)
    #: Why it failed, as the provider says it.
    failure_reason: str | None = fields.TextField(_("failure reason"), null=True)
    #: Set if the payout executes a refund. No constraint: the refund may come later, or never.
    refund: Refund | None = fields.SameAccountKey(
        "payments_integration.Refund",
        verbose_name=_("refund"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        related_name="payouts",
    )
    refund_id: str | None
    #: Your texts by name, returned unchanged.
    metadata: dict[str, Any] | None = fields.JSONField(_("metadata"), null=True)
    #: The provider's clock, as all times of the object.
    created_at: datetime = fields.DateTimeField(_("created at"))
    #: When it succeeded.
    succeeded_at: datetime | None = fields.DateTimeField(_("succeeded at"), null=True)

    refunds: PrimaryManager[Refund]

    Status = PayoutStatus

    class Meta:
        verbose_name = _("payout")
        verbose_name_plural = _("payouts")
        indexes = [
            # as for payments
            models.Index(fields=["merchant_reference"], name="pi_payout_reference"),
            models.Index(fields=["status", "synced_at"], name="pi_payout_silent"),
            models.Index(fields=["created_at", "id"], name="pi_payout_created"),
            models.Index(fields=["succeeded_at", "id"], name="pi_payout_succeeded"),
            models.Index(fields=["status", "created_at", "id"], name="pi_payout_by_status"),
            models.Index(fields=["currency", "created_at", "id"], name="pi_payout_by_currency"),
            models.Index(fields=["country", "created_at", "id"], name="pi_payout_by_country"),
            models.Index(fields=["account", "created_at", "id"], name="pi_payout_by_account"),
        ]
        permissions = [("create_payout", "Can send a payout"), ("cancel_payout", "Can cancel a payout")]


class Refund(Mirror):
    """Money back of a payment (spec, "Refund")."""

    kind = Kind.REFUND
    personal = ("reason", "extra")

    #: The provider's id.
    id: str = fields.ExactCharField(primary_key=True)
    #: See ``Refund.Status``.
    status: str = fields.CharField(_("status"), max_length=64)
    #: No constraint: a refund may come before its payment.
    payment: Payment | None = fields.SameAccountKey(
        Payment,
        verbose_name=_("payment"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        related_name="refunds",
    )
    payment_id: str | None
    #: Set if the refund is executed as a payout. No constraint.
    payout: Payout | None = fields.SameAccountKey(
        Payout,
        verbose_name=_("payout"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        related_name="refunds",
    )
    payout_id: str | None
    #: Given back, in minor units.
    amount: int = fields.BigIntegerField(_("amount"))
    #: Its ISO code.
    currency: str = fields.CharField(_("currency"), max_length=64)
    #: Why, as it was given; personal data.
    reason: str | None = fields.TextField(_("reason"), null=True)
    #: The provider's clock, as all times of the object.
    created_at: datetime = fields.DateTimeField(_("created at"))

    payouts: PrimaryManager[Payout]

    Status = RefundStatus

    class Meta:
        verbose_name = _("refund")
        verbose_name_plural = _("refunds")
        indexes = [
            # as for payments
            models.Index(fields=["status", "synced_at"], name="pi_refund_silent"),
            models.Index(fields=["created_at", "id"], name="pi_refund_created"),
            models.Index(fields=["status", "created_at", "id"], name="pi_refund_by_status"),
            models.Index(fields=["currency", "created_at", "id"], name="pi_refund_by_currency"),
            models.Index(fields=["account", "created_at", "id"], name="pi_refund_by_account"),
        ]


class DepositReference(Mirror):
    """A reference to which a payer transfers money repeatedly (spec, "Deposit reference")."""

    kind = Kind.DEPOSIT_REFERENCE
    personal = ("details", "extra")

    #: The provider's id.
    id: str = fields.ExactCharField(primary_key=True)
    #: See ``DepositReference.Status``.
    status: str = fields.CharField(_("status"), max_length=64)
    #: Its ISO code.
    country: str = fields.CharField(_("country"), max_length=64)
    #: Its ISO code.
    currency: str = fields.CharField(_("currency"), max_length=64)
    #: A ``code`` of ``services.list_payment_methods``.
    method_code: str = fields.CharField(_("method"), max_length=255)
    #: Yours for the payer.
    merchant_reference: str | None = fields.ExactCharField(_("merchant reference"), null=True)
    #: What the payer transfers to: ``next_action.parse`` reads it; personal data.
    details: dict[str, Any] = fields.JSONField(_("details"))
    #: The provider's clock, as all times of the object.
    created_at: datetime = fields.DateTimeField(_("created at"))

    Status = DepositReferenceStatus

    class Meta:
        verbose_name = _("deposit reference")
        verbose_name_plural = _("deposit references")
        indexes = [
            # as for payments
            models.Index(fields=["merchant_reference"], name="pi_deposit_reference"),
            models.Index(fields=["status", "synced_at"], name="pi_deposit_silent"),
            models.Index(fields=["created_at", "id"], name="pi_deposit_created"),
            models.Index(fields=["status", "created_at", "id"], name="pi_deposit_by_status"),
            models.Index(fields=["currency", "created_at", "id"], name="pi_deposit_by_currency"),
            models.Index(fields=["country", "created_at", "id"], name="pi_deposit_by_country"),
            models.Index(fields=["account", "created_at", "id"], name="pi_deposit_by_account"),
        ]


class Balance(Mirror):
    """One row per account and currency. Balances have no id at the provider."""

    kind = Kind.BALANCE

    #: Ours: the provider has none.
    id: int
    #: Its ISO code.
    currency: str = fields.ExactCharField(_("currency"), max_length=64)
    #: Can be paid out, in minor units, as all amounts of a balance.
    available: int = fields.BigIntegerField(_("available"))
    #: Waits for settlement.
    pending: int = fields.BigIntegerField(_("pending"))
    #: Held against chargebacks.
    reserve: int = fields.BigIntegerField(_("reserve"))
    #: Reserved for payouts and refunds in progress.
    hold: int = fields.BigIntegerField(_("hold"))
    #: Owed after chargebacks. While it is above zero, the provider refuses payouts and refunds.
    debt: int = fields.BigIntegerField(_("debt"))
    #: The provider's clock.
    updated_at: datetime | None = fields.DateTimeField(_("updated at"), null=True)
    #: The fields as the row was read; empty if it is new. An app with a history of balances compares them.
    as_read: Mapping[str, Any] = MappingProxyType({})

    class Meta:
        verbose_name = _("balance")
        verbose_name_plural = _("balances")
        constraints = [models.UniqueConstraint(fields=["account", "currency"], name="pi_balance_account_currency")]

    def __str__(self) -> str:
        return f"{self.account} {self.currency}"

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        row = super().from_db(*args, **kwargs)
        row.as_read = vars(row).copy()
        return row

    @property
    def object_id(self) -> str:
        return self.currency


class WebhookEndpoint(Mirror):
    """A webhook endpoint, with its secret (encrypted) if this app created or rotated it."""

    kind = Kind.WEBHOOK_ENDPOINT

    #: The provider's id.
    id: str = fields.ExactCharField(primary_key=True)
    #: The address that gets the deliveries.
    url: str = fields.TextField(_("URL"))
    #: The event types that it gets.
    events: list[str] = fields.JSONField(_("events"))
    #: See ``WebhookEndpoint.Status``.
    status: str = fields.CharField(_("status"), max_length=64)
    #: The provider's clock, as all times of the object.
    created_at: datetime | None = fields.DateTimeField(_("created at"), null=True)
    #: The secret, encrypted.
    secret_token: str = fields.TextField(editable=False, default="", blank=True)
    #: When the secret was made or rotated, by our clock.
    secret_since: datetime | None = fields.DateTimeField(_("secret since"), null=True, editable=False)
    #: After a rotation the old secret stays valid 24 hours (spec, "Webhook endpoints").
    previous_secret_token: str = fields.TextField(editable=False, default="", blank=True)
    #: Deliveries signed with the previous secret are accepted until then.
    previous_secret_until: datetime | None = fields.DateTimeField(
        _("previous secret valid until"), null=True, editable=False
    )
    #: When it was deleted through this app.
    deleted_at: datetime | None = fields.DateTimeField(_("deleted at"), null=True, editable=False)
    #: The problem that ``attention`` was called for last; empty: there is none.
    reported_problem: str = fields.OwnTextField(default="", editable=False)

    Status = ActiveStatus

    class Meta:
        verbose_name = _("webhook endpoint")
        verbose_name_plural = _("webhook endpoints")
        permissions = [
            ("manage_webhookendpoint", "Can create and delete webhook endpoints"),
            ("rotate_webhookendpoint", "Can rotate a webhook secret"),
        ]

    def __repr__(self) -> str:
        return f"<WebhookEndpoint: {self.pk}>"


#: What an erasure writes to fields that cannot be null.
EMPTY_VALUES: dict[str, Any] = {"extra": {}, "details": {}, "payer_email": "", "payer_document": ""}

#: The mirrors by kind. Locks are taken in this order.
MIRRORS: dict[str, type[Any]] = {
    Kind.PAYMENT: Payment,
    Kind.PAYOUT: Payout,
    Kind.REFUND: Refund,
    Kind.DEPOSIT_REFERENCE: DepositReference,
    Kind.BALANCE: Balance,
    Kind.WEBHOOK_ENDPOINT: WebhookEndpoint,
}


def refundable_rest(payment: Payment, *, without: str = "") -> int:
    """Return the minor units of a payment that no refund has taken: done, in progress or perhaps sent.

    The operation, ``services``, pages and receipts ask here. ``payable.sql`` says the same in SQL, for many orders.
    Reads mirrored rows only. The result is exact in the transaction that records a refund, under the payment's lock
    and after the refunds were listed. Elsewhere it is for display. ``without`` is the id of an operation to leave out.
    """
    return rest_after(payment, *refunds_and_promises(payment, without=without))


class RefundFigures(NamedTuple):
    """The fields of a refund that count for the refundable rest."""

    amount: int
    currency: str
    status: str
    state_at: datetime


#: Stands in for a refund's status: an operation asks for it.
_PROMISED = "asked for"


def refunds_and_promises(payment: Payment, *, without: str = "") -> tuple[list[RefundFigures], int]:
    """Return the refunds of a payment, and the minor units that open operations ask to refund.

    Takes one statement. A transaction of MariaDB takes two, because a union has no locking reads.
    """
    of_payment = open_refund_operations(payment.account).filter(target_id=payment.pk)
    operations = as_committed(of_payment.exclude(pk=without))
    refunds = as_committed(Refund.objects.filter(account=payment.account, payment_id=payment.pk))
    listed: QuerySet[Any, Any] = refunds.values_list("amount", "currency", "status", "state_at")
    asked: QuerySet[Any, Any] = operations.values_list("amount", "currency", Value(_PROMISED), "created_at")
    if operations.query.select_for_update:
        # Operations first. An operation that ends between the two reads then counts twice, which a refresh corrects.
        # In the other order it would not count at all.
        found = [*asked, *listed]
    else:
        found = list(listed.order_by().union(asked.order_by(), all=True))
    rows = list(map(RefundFigures._make, found))
    promised = sum(row.amount or 0 for row in rows if row.status == _PROMISED)
    return [row for row in rows if row.status != _PROMISED], promised


def rest_after(payment: Payment, refunds: Iterable[Refund | RefundFigures], promised: int = 0) -> int:
    """Return the refundable rest of a payment, from all its refunds and the minor units that operations ask to refund.

    The provider does not say if ``refunded_amount`` includes refunds in progress, and it may be older than the
    refunds. The larger of the two figures counts.
    """
    if payment.status in NEVER_REFUNDED_STATUSES:
        return 0
    known = list(refunds)
    listed = sum(refund.amount for refund in known if refund.status not in VOID_REFUND_STATUSES)
    rest: int = payment.amount_received - max(reported_refunded(payment, known), listed) - promised
    return rest


def refunded_so_far(payment: Payment, refunds: Iterable[Refund | RefundFigures]) -> int:
    """Return the minor units that went back, without refunds in progress: the larger figure of ``rest_after``."""
    known = list(refunds)
    done = sum(refund.amount for refund in known if refund.status == RefundStatus.SUCCEEDED)
    return max(done, reported_refunded(payment, known))


def reported_refunded(payment: Payment, refunds: Iterable[Refund | RefundFigures]) -> int:
    """Return the provider's ``refunded_amount`` without refunds that were returned after the payment was read.

    ``refunded_amount`` changes without an event, and handlers get a returned refund before its payment is read again.
    """
    returned = sum(
        refund.amount
        for refund in refunds
        if refund.status == RefundStatus.RETURNED and refund.state_at > payment.state_at
    )
    return max(0, (payment.refunded_amount or 0) - returned)


def promised_refunds() -> Subquery:
    """Return the minor units that open operations ask to refund, to annotate payments; null if there are none."""
    of_payment = open_refund_operations(OuterRef("account")).filter(target_id=OuterRef("pk")).order_by()
    return Subquery(of_payment.values("target_id").annotate(total=Sum("amount")).values("total"))


def sent_refund_operations(account: str, payment_id: str) -> QuerySet[Operation]:
    """Return the open refunds of a payment whose outcome is unknown: each may have made a refund."""
    asked = open_refund_operations(account).filter(target_id=payment_id)
    return asked.filter(state=OperationState.UNKNOWN, may_have_run=True)


def open_refund_operations(account: str | OuterRef) -> QuerySet[Operation]:
    """Return the refunds that are asked for, and may still happen or have happened unseen.

    ``target_id`` is the payment.
    """
    return Operation.objects.filter(
        account=account, operation="create_refund", state__in=OPEN_OPERATION_STATES, result_id=""
    )
