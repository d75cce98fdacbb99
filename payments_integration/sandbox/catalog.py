"""Define invented payment methods with fees, limits and next actions, and the merchant's agreement about them.

Every country has every method family and every type of next action. See "Shared shapes" in the provider's document.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from .protocol import COUNTRIES, DAY, HOUR, ApiError, Json

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
# The fixed fee of a payout, and of a refund that runs as a payout, in minor units. A card refund is free.
PAYOUT_FEES: Final = {"CLP": 300, "COP": 150_000, "PEN": 300, "MXN": 800, "BRL": 250, "USD": 100}

# Seconds until a payment expires. A direct card payment needs no action by the payer and does not expire.
LIFETIMES: Final = {"card": HOUR, "bank_redirect": HOUR, "wallet": HOUR, "bank_transfer": 3 * DAY, "cash": 3 * DAY}


@dataclass(frozen=True)
class Method:
    """One payment method. ``uses`` says which requests accept its code."""

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

    def check_amount(self, amount: int) -> None:
        """Raise amount_out_of_range above the maximum."""
        if amount > self.max_amount:
            problem = f"{self.code} takes at most {self.max_amount} minor units."
            raise ApiError("amount_out_of_range", problem, param="amount")

    def wire(self, *, available: bool) -> Json:
        """Return an item of GET /payment-methods. We chose the fields, because the provider's document shows none."""
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
NO_ACTION: Final[Json] = {"type": "none"}
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
    """Return the fee on the received amount, both in minor units."""
    return (received * FEE_BASIS_POINTS[family] + 5_000) // 10_000


def payout_fee(currency: str) -> int:
    """Return the fee that is reserved in addition to a payout's amount, in minor units."""
    return PAYOUT_FEES[currency]


def payout_method(country: str, currency: str) -> Method | None:
    """Return the method for refunds to a bank account in this country and currency, or None."""
    for method in METHODS.values():
        if "payout" in method.uses and (method.country, method.currency) == (country, currency):
            return method
    return None


def _digits(count: int) -> str:
    return "".join(secrets.choice("0123456789") for _ in range(count))


def transfer_details(method: Method, holder: str = "Sandbox Payments Ltd") -> Json:
    """Return a ``next_action`` with a bank account to transfer to and the reference that the payer must include."""
    return {
        "type": "bank_transfer_details",
        "bank_transfer": {
            "bank_name": f"Sandbox Bank {method.country}",
            "account_number": _digits(18 if method.country == "MX" else 12),
            "account_holder": holder,
        },
        "reference": _digits(10),
    }


def next_action(method: Method, page_url: str, expires_at: str | None) -> Json:
    """Return the ``next_action`` of an s2s payment, with ``reference`` and ``expires_at`` at its top level."""
    action: Json = {"type": method.next_action}
    if method.next_action == "redirect":
        action["redirect_url"] = page_url
    elif method.next_action == "qr":
        action["qr_payload"] = f"sandbox:{method.code}:{secrets.token_hex(16)}"
    elif method.next_action == "voucher":
        action |= {"voucher_code": _digits(14), "voucher_barcode": _digits(44), "reference": _digits(10)}
    elif method.next_action == "bank_transfer_details":
        action = transfer_details(method)
    elif method.next_action == "phone_otp":
        action["reference"] = _digits(6)
    if expires_at is not None and method.next_action != "none":
        action["expires_at"] = expires_at
    return action


@dataclass
class Terms:
    """The provider's agreement with this merchant. Each field causes the error code beside it."""

    active: bool = True  # False: merchant_not_active
    countries: set[str] = field(default_factory=lambda: set(COUNTRIES))  # others: country_not_allowed
    forbidden_methods: set[str] = field(default_factory=set)  # method_not_allowed
    unavailable_methods: set[str] = field(default_factory=set)  # method_not_available
    broken_methods: set[str] = field(default_factory=set)  # provider_unavailable
    blocked_payers: set[str] = field(default_factory=set)  # e-mails or document numbers: blocked_payer
    require_whitelist: bool = False  # destinations must be whitelisted for 24 hours
    whitelist: dict[str, datetime] = field(default_factory=dict)  # account number -> active from

    def method(self, code: str, use: str, country: str, currency: str) -> Method:
        """Return the method with this ``method_code``.

        Raises ApiError if the merchant cannot use it this way in this country and currency.
        """
        if country not in self.countries:
            raise ApiError("country_not_allowed", "Your agreement does not cover this country.", param="country")
        method = METHODS.get(code)
        if method is None:
            raise ApiError("parameter_invalid", f"There is no payment method {code!r}.", param="method_code")
        if code in self.forbidden_methods:
            raise ApiError("method_not_allowed", "Your agreement does not cover this method.", param="method_code")
        fits = use in method.uses and (method.country, method.currency) == (country, currency)
        if not fits or code in self.unavailable_methods:
            problem = f"{code} is not available for a {use.replace('_', ' ')} in {country} in {currency}."
            raise ApiError("method_not_available", problem, param="method_code")
        if code in self.broken_methods:
            raise ApiError("provider_unavailable")
        return method

    def check_payer(self, payer: Json | None) -> None:
        """Raise blocked_payer for a payer on the block list and for e-mails that begin with ``blocked@``."""
        payer = payer or {}
        email = payer.get("email", "")
        number = payer.get("document", {}).get("number", "")
        if email.startswith("blocked@") or {email, number} & self.blocked_payers:
            raise ApiError("blocked_payer", "This payer is blocked.", param="payer")

    def add_to_whitelist(self, account_number: str, now: datetime) -> None:
        """Add a destination, active after 24 hours."""
        self.whitelist[account_number] = now + timedelta(seconds=DAY)

    def check_destination(self, destination: Json, now: datetime) -> None:
        """Raise parameter_invalid if the merchant needs a whitelist and this account is not active on it."""
        active_from = self.whitelist.get(destination["account_number"])
        if self.require_whitelist and (active_from is None or active_from > now):
            problem = "This account is not whitelisted, or was added less than 24 hours ago."
            raise ApiError("parameter_invalid", problem, param="destination.account_number")
