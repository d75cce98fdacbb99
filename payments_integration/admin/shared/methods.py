"""Names of payment methods and reasons on pages, which look up nothing for each row."""

from __future__ import annotations

from payments_integration.admin.shared import display
from payments_integration.payer import names
from payments_integration.payer.names import reason_text

__all__ = ["method_name", "reason_text"]


def method_name(code: str) -> str:
    """A method's code as words: ``cl_webpay_card`` is "Webpay card"."""
    return display.text(names.method_name(code))
