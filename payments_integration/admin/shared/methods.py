"""Name payment methods and reasons on pages, without a look-up for each row."""

from __future__ import annotations

from payments_integration.admin.shared import display
from payments_integration.payer import names
from payments_integration.payer.names import reason_text

__all__ = ["method_name", "reason_text"]


def method_name(code: str) -> str:
    """Return a method's code in words: ``cl_webpay_card`` is "Webpay card"."""
    return display.text(names.method_name(code))
