"""For merchants' own tests: a running provider, and signed deliveries.

def test_order_is_paid(client, db, payments_sandbox):
    payment = create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
    payments_sandbox.engine.pay(payment.id)
    payments_sandbox.settle()
    payment.refresh_from_db()
    assert payment.status == "succeeded"
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from payments_integration.testing.deliveries import signed_delivery
    from payments_integration.testing.provider import ProviderSandbox

__all__ = ["ProviderSandbox", "signed_delivery"]

_MODULES = {
    "ProviderSandbox": "payments_integration.testing.provider",
    "signed_delivery": "payments_integration.testing.deliveries",
}


def __getattr__(name: str) -> Any:
    # On first use: pytest imports this package for its plugin before Django's settings are there.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
