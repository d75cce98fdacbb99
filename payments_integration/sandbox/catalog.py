"""The invented payment methods, fees and amount bounds: one table per country, every family and next action
in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .shapes import DAY, HOUR, Wire

MIN_AMOUNT: Final = 1
MAX_AMOUNT: Final = 1_000_000_000_000
MAX_CASH_AMOUNT: Final = 10_000_000_000

# Payment fees in basis points of the money received, rounded half up.
FEE_BASIS_POINTS: Final = {
    "card": 290,
    "bank_redirect": 150,
    "bank_transfer": 100,
    "wallet": 200,
    "cash": 250,
    "deposit_reference": 80,
}
# A payout costs a fixed fee, in minor units; so does a refund that runs as a payout. A card refund costs
# nothing.
PAYOUT_FEES: Final = {"CLP": 300, "COP": 150_000, "PEN": 300, "MXN": 800, "BRL": 250, "USD": 100}

# How long the payer has. A direct card payment asks nothing of the payer and does not expire.
LIFETIMES: Final = {
    "card": HOUR,
    "bank_redirect": HOUR,
    "wallet": HOUR,
    "bank_transfer": 3 * DAY,
    "cash": 3 * DAY,
}


@dataclass(frozen=True)
class Method:
    """One payment method; ``uses`` says which requests accept its code."""

    code: str
    name: str
    family: str
    country: str
    currency: str
    next_action: str
    uses: tuple[str, ...] = ("payment",)

    @property
    def max_amount(self) -> int:
        """The largest amount in minor units."""
        return MAX_CASH_AMOUNT if self.family == "cash" else MAX_AMOUNT

    def wire(self, *, available: bool) -> Wire:
        """The record of GET /payment-methods. The provider's document does not show its fields: these are a choice."""
        return {
            "object": "payment_method",
            "code": self.code,
            "name": self.name,
            "family": self.family,
            "country": self.country,
            "currency": self.currency,
            "next_action": self.next_action,
            "uses": list(self.uses),
            "min_amount": MIN_AMOUNT,
            "max_amount": self.max_amount,
            "available": available,
        }


BOTH: Final = ("payment", "payout")
DEPOSIT: Final = ("deposit_reference",)
DETAILS: Final = "bank_transfer_details"

METHODS: Final[dict[str, Method]] = {
    method.code: method
    for method in (
        Method("cl_webpay_card", "Webpay card", "card", "CL", "CLP", "redirect"),
        Method("cl_card_direct", "Card on file", "card", "CL", "CLP", "none"),
        Method("cl_khipu", "Khipu", "bank_redirect", "CL", "CLP", "redirect"),
        Method("cl_bank_transfer", "Bank transfer", "bank_transfer", "CL", "CLP", DETAILS, BOTH),
        Method("cl_mach", "MACH", "wallet", "CL", "CLP", "qr"),
        Method("cl_chek", "Chek", "wallet", "CL", "CLP", "phone_otp"),
        Method("cl_servipag", "Servipag cash", "cash", "CL", "CLP", "voucher"),
        Method("cl_deposit", "Deposit account", "deposit_reference", "CL", "CLP", DETAILS, DEPOSIT),
        Method("co_card", "Card", "card", "CO", "COP", "redirect"),
        Method("co_card_direct", "Card on file", "card", "CO", "COP", "none"),
        Method("co_pse", "PSE", "bank_redirect", "CO", "COP", "redirect"),
        Method("co_bank_transfer", "Bank transfer", "bank_transfer", "CO", "COP", DETAILS, BOTH),
        Method("co_bre_b", "Bre-B", "wallet", "CO", "COP", "qr"),
        Method("co_nequi", "Nequi", "wallet", "CO", "COP", "phone_otp"),
        Method("co_efecty", "Efecty", "cash", "CO", "COP", "voucher"),
        Method("co_deposit", "Deposit account", "deposit_reference", "CO", "COP", DETAILS, DEPOSIT),
        Method("ec_card", "Card", "card", "EC", "USD", "redirect"),
        Method("ec_card_direct", "Card on file", "card", "EC", "USD", "none"),
        Method("ec_pichincha", "Banco Pichincha", "bank_redirect", "EC", "USD", "redirect"),
        Method("ec_bank_transfer", "Bank transfer", "bank_transfer", "EC", "USD", DETAILS, BOTH),
        Method("ec_deuna", "DeUna", "wallet", "EC", "USD", "qr"),
        Method("ec_payphone", "PayPhone", "wallet", "EC", "USD", "phone_otp"),
        Method("ec_facilito", "Facilito", "cash", "EC", "USD", "voucher"),
        Method("ec_deposit", "Deposit account", "deposit_reference", "EC", "USD", DETAILS, DEPOSIT),
        Method("pe_card", "Card", "card", "PE", "PEN", "redirect"),
        Method("pe_card_direct", "Card on file", "card", "PE", "PEN", "none"),
        Method("pe_bcp", "BCP online", "bank_redirect", "PE", "PEN", "redirect"),
        Method("pe_bank_transfer", "Bank transfer", "bank_transfer", "PE", "PEN", DETAILS, BOTH),
        Method("pe_bank_transfer_usd", "Transfer in dollars", "bank_transfer", "PE", "USD", DETAILS, BOTH),
        Method("pe_plin", "Plin", "wallet", "PE", "PEN", "qr"),
        Method("pe_yape", "Yape", "wallet", "PE", "PEN", "phone_otp"),
        Method("pe_pagoefectivo", "PagoEfectivo", "cash", "PE", "PEN", "voucher"),
        Method("pe_deposit", "Deposit account", "deposit_reference", "PE", "PEN", DETAILS, DEPOSIT),
        Method("mx_card", "Card", "card", "MX", "MXN", "redirect"),
        Method("mx_card_direct", "Card on file", "card", "MX", "MXN", "none"),
        Method("mx_bbva", "BBVA online", "bank_redirect", "MX", "MXN", "redirect"),
        Method("mx_spei", "SPEI", "bank_transfer", "MX", "MXN", DETAILS, BOTH),
        Method("mx_codi", "CoDi", "wallet", "MX", "MXN", "qr"),
        Method("mx_dimo", "DiMo", "wallet", "MX", "MXN", "phone_otp"),
        Method("mx_oxxo", "OXXO", "cash", "MX", "MXN", "voucher"),
        Method("mx_deposit", "Deposit CLABE", "deposit_reference", "MX", "MXN", DETAILS, DEPOSIT),
        Method("br_card", "Card", "card", "BR", "BRL", "redirect"),
        Method("br_card_direct", "Card on file", "card", "BR", "BRL", "none"),
        Method("br_open_finance", "Open Finance", "bank_redirect", "BR", "BRL", "redirect"),
        Method("br_ted", "TED transfer", "bank_transfer", "BR", "BRL", DETAILS, BOTH),
        Method("br_pix", "Pix", "bank_transfer", "BR", "BRL", "qr", BOTH),
        Method("br_picpay", "PicPay", "wallet", "BR", "BRL", "qr"),
        Method("br_mercado_pago", "Mercado Pago", "wallet", "BR", "BRL", "phone_otp"),
        Method("br_boleto", "Boleto", "cash", "BR", "BRL", "voucher"),
        Method("br_deposit", "Deposit account", "deposit_reference", "BR", "BRL", DETAILS, DEPOSIT),
    )
}  # fmt: skip


def payment_fee(family: str, received: int) -> int:
    """The fee on money received, in its minor units."""
    return (received * FEE_BASIS_POINTS[family] + 5_000) // 10_000


def payout_fee(currency: str) -> int:
    """The fee reserved on top of a payout."""
    return PAYOUT_FEES[currency]


def payout_method(country: str, currency: str) -> Method | None:
    """The method that carries a refund to a bank account there, if any."""
    for method in METHODS.values():
        if "payout" in method.uses and (method.country, method.currency) == (country, currency):
            return method
    return None
