"""What a payer sees of a payment: template tags (``{% load payments %}``), a status page, and where to come back to.

``return_url`` and ``status_url`` make the addresses; the views may be subclassed. See ``docs/11-checkout.md``.
"""

from payments_integration.checkout.addresses import return_url, status_url
from payments_integration.checkout.views import CheckoutReturnView, CheckoutStatusDataView, CheckoutStatusView

__all__ = ["CheckoutReturnView", "CheckoutStatusDataView", "CheckoutStatusView", "return_url", "status_url"]
