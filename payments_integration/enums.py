"""Define the provider's closed sets (spec, "Resources and their fields" and "Events").

They validate what *we* send. A value from the provider that this version does not know is stored as it is.
"""

from __future__ import annotations

from typing import Literal, get_args

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _, pgettext_lazy


class Kind(TextChoices):
    """The ``object`` of a mirrored resource."""

    PAYMENT = "payment", _("payment")
    PAYOUT = "payout", _("payout")
    REFUND = "refund", _("refund")
    DEPOSIT_REFERENCE = "deposit_reference", _("deposit reference")
    BALANCE = "balance", _("balance")
    WEBHOOK_ENDPOINT = "webhook_endpoint", _("webhook endpoint")


#: How the ids of each kind begin (spec, "Resources and their fields"). Balances have no id.
ID_PREFIXES: dict[str, str] = {
    Kind.PAYMENT: "pay_",
    Kind.PAYOUT: "pout_",
    Kind.REFUND: "ref_",
    Kind.DEPOSIT_REFERENCE: "dep_",
    Kind.WEBHOOK_ENDPOINT: "whk_",
}


def kind_of(object_id: str) -> Kind | None:
    """Return the kind that the prefix of an id names; None for any other text."""
    return next((Kind(kind) for kind, prefix in ID_PREFIXES.items() if object_id.startswith(prefix)), None)


class Country(TextChoices):
    CL = "CL", _("Chile")
    CO = "CO", _("Colombia")
    EC = "EC", _("Ecuador")
    PE = "PE", _("Peru")
    MX = "MX", _("Mexico")
    BR = "BR", _("Brazil")


class Currency(TextChoices):
    CLP = "CLP", "CLP"
    COP = "COP", "COP"
    PEN = "PEN", "PEN"
    MXN = "MXN", "MXN"
    BRL = "BRL", "BRL"
    USD = "USD", "USD"


class DocumentType(TextChoices):
    RUT = "RUT", "RUT"
    CC = "CC", "CC"
    NIT = "NIT", "NIT"
    CE = "CE", "CE"
    PASS = "PASS", _("passport")
    PPT = "PPT", "PPT"
    RUC = "RUC", "RUC"
    DL = "DL", "DL"
    DNI = "DNI", "DNI"
    CPP = "CPP", "CPP"
    CPF = "CPF", "CPF"
    CNPJ = "CNPJ", "CNPJ"
    RFC = "RFC", "RFC"
    CURP = "CURP", "CURP"


class AccountType(TextChoices):
    CHECKING = "checking", _("checking")
    SAVINGS = "savings", _("savings")
    VISTA = "vista", _("vista")
    OTHER = "other", _("other")


#: Kept here, because Django's ``values`` builds them at each use.
COUNTRIES, CURRENCIES, DOCUMENT_TYPES, ACCOUNT_TYPES = (
    tuple(choices.values) for choices in (Country, Currency, DocumentType, AccountType)
)


class Flow(TextChoices):
    HOSTED = "hosted", _("hosted")
    S2S = "s2s", _("server to server")
    DEPOSIT_REFERENCE = "deposit_reference", _("deposit reference")


class MethodFamily(TextChoices):
    CARD = "card", _("card")
    BANK_REDIRECT = "bank_redirect", _("bank redirect")
    BANK_TRANSFER = "bank_transfer", _("bank transfer")
    WALLET = "wallet", _("wallet")
    CASH = "cash", _("cash")
    DEPOSIT_REFERENCE = "deposit_reference", _("deposit reference")


class PaymentStatus(TextChoices):
    CREATED = "created", _("created")
    REQUIRES_ACTION = "requires_action", _("requires action")
    PROCESSING = "processing", _("processing")
    SUCCEEDED = "succeeded", pgettext_lazy("payment", "succeeded")
    FAILED = "failed", _("failed")
    EXPIRED = "expired", _("expired")
    CANCELED = "canceled", _("canceled")
    ON_HOLD = "on_hold", _("on hold")
    PARTIALLY_PAID = "partially_paid", _("partially paid")
    OVERPAID = "overpaid", _("overpaid")
    CHARGEBACK = "chargeback", _("chargeback")


class PayoutStatus(TextChoices):
    CREATED = "created", _("created")
    PROCESSING = "processing", _("processing")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELED = "canceled", _("canceled")
    ON_HOLD = "on_hold", _("on hold")
    RETURNED = "returned", _("returned")


class RefundStatus(TextChoices):
    CREATED = "created", _("created")
    PROCESSING = "processing", _("processing")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELED = "canceled", _("canceled")
    RETURNED = "returned", _("returned")


class ActiveStatus(TextChoices):
    """The status of a webhook endpoint."""

    ACTIVE = "active", _("active")
    DISABLED = "disabled", _("disabled")


class DepositReferenceStatus(TextChoices):
    """The same values, in words that agree with the feminine noun of other languages."""

    ACTIVE = "active", pgettext_lazy("deposit reference", "active")
    DISABLED = "disabled", pgettext_lazy("deposit reference", "disabled")


#: The same statuses as literals, for type checkers.
PaymentStatusName = Literal[
    "created", "requires_action", "processing", "succeeded", "failed", "expired", "canceled", "on_hold",
    "partially_paid", "overpaid", "chargeback",
]  # fmt: skip
PayoutStatusName = Literal["created", "processing", "succeeded", "failed", "canceled", "on_hold", "returned"]
RefundStatusName = Literal["created", "processing", "succeeded", "failed", "canceled", "returned"]
ActiveStatusName = Literal["active", "disabled"]

#: A payment in one of these may still change on its own. The others change only through a late payment, a refund or a
#: chargeback.
OPEN_PAYMENT_STATUSES = frozenset({"created", "requires_action", "processing", "on_hold", "partially_paid"})
#: The merchant owns the money received. A payment on hold is not here: its money may go back to the payer.
RECEIVED_PAYMENT_STATUSES = frozenset({"succeeded", "overpaid", "partially_paid"})
#: All of the requested money arrived.
PAID_PAYMENT_STATUSES = frozenset({"succeeded", "overpaid"})
#: Attempts that ended without payment.
VAIN_PAYMENT_STATUSES = frozenset({"failed", "expired", "canceled"})
#: No more money is expected. A late payment turns an expired one into a succeeded one.
ENDED_PAYMENT_STATUSES = frozenset({"succeeded", "overpaid", "chargeback"}) | VAIN_PAYMENT_STATUSES
OPEN_PAYOUT_STATUSES = frozenset({"created", "processing", "on_hold"})
OPEN_REFUND_STATUSES = frozenset({"created", "processing"})
#: Payouts and refunds that took no money, or gave it back.
VOID_PAYOUT_STATUSES = VOID_REFUND_STATUSES = frozenset({"failed", "canceled", "returned"})
#: No money arrived, or the payer already has it back (spec: "Refund succeeded payments").
NEVER_REFUNDED_STATUSES = VAIN_PAYMENT_STATUSES | {"chargeback"}

#: Statuses from which a cancel is accepted (spec, "States and transitions").
CANCELABLE_PAYMENT_STATUSES = frozenset({"created", "requires_action"})
CANCELABLE_PAYOUT_STATUSES = frozenset({"created"})
#: A payment, payout or refund begins with these. A change from another status back to one of them is rare.
FIRST_STATUSES = CANCELABLE_PAYMENT_STATUSES | OPEN_REFUND_STATUSES

#: The event types of the spec, by the kind of object. Unknown types are stored too.
PaymentEventType = Literal[
    "payment.created", "payment.requires_action", "payment.processing", "payment.succeeded", "payment.failed",
    "payment.expired", "payment.canceled", "payment.on_hold", "payment.partially_paid", "payment.overpaid",
    "payment.chargeback",
]  # fmt: skip
PayoutEventType = Literal[
    "payout.created", "payout.processing", "payout.succeeded", "payout.failed", "payout.canceled", "payout.on_hold",
    "payout.delayed", "payout.returned",
]  # fmt: skip
RefundEventType = Literal[
    "refund.created", "refund.processing", "refund.succeeded", "refund.failed", "refund.returned"
]
BalanceEventType = Literal["balance.updated"]
EventType = Literal[PaymentEventType, PayoutEventType, RefundEventType, BalanceEventType]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
#: Patterns for several types, as ``handlers.on_event`` takes them.
EventPattern = Literal[
    "*", "payment.*", "payout.*", "refund.*", "balance.*", "*.created", "*.requires_action", "*.processing",
    "*.succeeded", "*.failed", "*.expired", "*.canceled", "*.on_hold", "*.partially_paid", "*.overpaid",
    "*.chargeback", "*.delayed", "*.returned", "*.updated",
]  # fmt: skip
