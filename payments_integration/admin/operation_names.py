"""Operations in the words of those who ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from payments_integration.admin import display

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: By the service function that leaves the operation.
NAMES: dict[str, StrOrPromise] = {
    "create_payment": _("new payment"),
    "cancel_payment": _("cancel of a payment"),
    "create_payout": _("new payout"),
    "cancel_payout": _("cancel of a payout"),
    "create_refund": _("refund"),
    "create_deposit_reference": _("new deposit reference"),
    "create_webhook_endpoint": _("new webhook endpoint"),
    "rotate_webhook_secret": _("rotation of a webhook secret"),
    "delete_webhook_endpoint": _("deletion of a webhook endpoint"),
}


def in_words(operation: str) -> str:
    """One of another version as it came."""
    return display.text(NAMES.get(operation, operation))


def choices() -> list[tuple[str, StrOrPromise]]:
    return list(NAMES.items())
