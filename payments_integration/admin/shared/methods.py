"""Names of payment methods. The provider lists codes, and the spec defines no name for them."""

from __future__ import annotations

from payments_integration.admin.shared import display
from payments_integration.enums import MethodFamily


def method_name(code: str, country: str) -> str:
    """A method's code as words: ``cl_webpay_card`` of CL is "Webpay card", ``cl_bank_transfer`` the family's name."""
    rest = code.removeprefix(f"{country.lower()}_") if country else code
    words = dict(MethodFamily.choices).get(rest) or rest.replace("_", " ").strip() or code
    shown = display.text(words)
    return shown[:1].upper() + shown[1:]
