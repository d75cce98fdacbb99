"""What the payer must do next: an invented but plausible ``next_action`` of each type ("Shared shapes")."""

from __future__ import annotations

import secrets

from .catalog import Method
from .shapes import Wire

NOTHING: Wire = {"type": "none"}


def _digits(count: int) -> str:
    return "".join(secrets.choice("0123456789") for _ in range(count))


def transfer_details(method: Method, holder: str = "Sandbox Payments Ltd") -> Wire:
    """A bank account to send money to, with the reference that the payer must include."""
    return {
        "type": "bank_transfer_details",
        "bank_transfer": {
            "bank_name": f"Sandbox Bank {method.country}",
            "account_number": _digits(18 if method.country == "MX" else 12),
            "account_holder": holder,
        },
        "reference": _digits(10),
    }


def next_action(method: Method, page_url: str, expires_at: str | None) -> Wire:
    """The action that a method asks for in the s2s flow; ``reference`` and ``expires_at`` stand at its top level."""
    action: Wire = {"type": method.next_action}
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
