"""Show the payer's next action, a payment's status, times and money: ``{% load payments_integration %}``.

The templates are in ``payments_integration/``. To override one, add a file of the same name to your templates.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.timezone import is_aware

from payments_integration.checkout import timeline
from payments_integration.checkout.actions import shown_action
from payments_integration.dates import with_zone
from payments_integration.money import INT64_MAX, format_for_payer
from payments_integration.payer.status import shown_status

register = template.Library()


@register.inclusion_tag("payments_integration/next_action.html")
def next_action(obj: Any) -> dict[str, Any]:
    """Show what the payer must do next: ``{% next_action payment %}``. Shows nothing if there is nothing left to do.

    ``obj`` is a payment, a deposit reference, or the dict itself.
    """
    return {"action": shown_action(obj), "object": obj}


@register.inclusion_tag("payments_integration/payment_status.html")
def payment_status(payment: Any) -> dict[str, Any]:
    """Show the status in the payer's words: ``{% payment_status payment %}``. None means not in the mirror yet."""
    # The value of an undefined variable is an empty text.
    return {"status": shown_status(payment or None)}


@register.inclusion_tag("payments_integration/payment_timeline.html")
def payment_timeline(order: Any) -> dict[str, Any]:
    """Show what happened to a ``Payable``'s payments and refunds, newest first: ``{% payment_timeline order %}``."""
    return {"steps": timeline(order)}


@register.simple_tag
def payment_time(at: Any, country: str = "") -> str:
    """Show a time in words, in the zone of the country: ``{% payment_time order.created_at order.country %}``.

    A script then shows it in the payer's own time zone. Empty for a value that is not an aware time.
    """
    if not isinstance(at, datetime) or not is_aware(at):
        return ""
    words = '<time class="payments-time" datetime="{}" data-payments-local>{}</time>'
    return format_html(words, at.isoformat(timespec="seconds"), with_zone(at, str(country)))


@register.filter
def money(amount: Any, of: Any) -> str:
    """Show an amount as the payment's country writes it, in every language: ``{{ payment.amount|money:payment }}``.

    ``amount`` is in minor units. ``of`` is a payment, or another object with ``currency`` and ``country``. It may also
    be the code of a currency, as in ``{{ amount|money:"CLP" }}``: the code and the separators of the active language
    are then shown. Empty for a value that is not an amount.
    """
    if isinstance(amount, bool) or not isinstance(amount, int) or abs(amount) > INT64_MAX:
        return ""
    return format_for_payer(amount, str(getattr(of, "currency", of)), str(getattr(of, "country", "")))
