"""Money as the shop shows it: the way the provider's checkout page does."""

from __future__ import annotations

from payments_integration.money import to_major


def show_money(amount: int, currency: str) -> str:
    """Minor units for people: 29980 CLP is ``CLP 29,980``. A code, because many currencies here are written ``$``."""
    return f"{currency} {to_major(amount, currency):,}"
