"""What a payer sees of a payment: template tags, a status page and a return page.

The tags are ``{% load payments_integration %}``. ``return_url`` and ``status_url`` make the pages' addresses; you
can subclass the views. See ``docs/11-checkout.md``.
"""

from payments_integration.checkout.links import return_url, status_url
from payments_integration.checkout.views import (
    CheckoutReturnView,
    CheckoutStatusDataView,
    CheckoutStatusView,
    CheckoutView,
)

__all__ = [
    "CheckoutReturnView",
    "CheckoutStatusDataView",
    "CheckoutStatusView",
    "CheckoutView",
    "return_url",
    "status_url",
]
