"""What a payer must do, how a payment stands, and money: ``{% load payments %}``.

The templates are under ``payments_integration/``; a project overrides one by a file of the same name.
"""

from __future__ import annotations

from typing import Any

from django import template

from payments_integration.checkout.actions import shown_action
from payments_integration.checkout.standing import standing
from payments_integration.money import INT64_MAX, format_money

register = template.Library()


@register.inclusion_tag("payments_integration/next_action.html")
def next_action(obj: Any) -> dict[str, Any]:
    """``{% next_action payment %}``: what the payer must do next. Also of a deposit reference, or of the dict itself.

    Nothing where there is nothing to do any more.
    """
    return {"action": shown_action(obj), "object": obj}


@register.inclusion_tag("payments_integration/payment_status.html")
def payment_status(payment: Any) -> dict[str, Any]:
    """``{% payment_status payment %}``: how it stands, in the payer's words; None: not in the mirror yet."""
    # An undefined variable comes as an empty text.
    return {"standing": standing(payment or None)}


@register.filter
def money(amount: Any, currency: Any) -> str:
    """``{{ payment.amount|money:payment.currency }}``: minor units as people read them in the active language.

    Empty for what is no amount.
    """
    if isinstance(amount, bool) or not isinstance(amount, int) or abs(amount) > INT64_MAX:
        return ""
    return format_money(amount, str(currency))
