"""Show a payment to its payer: template tags, a status page and a return page.

Load the tags with ``{% load payments_integration %}``. ``return_url`` and ``status_url`` make the pages' addresses.
You can subclass the views. The other names are for an order page of your own. See ``docs/checkout.md``.
"""

from payments_integration.checkout.attempts import (
    cancel_attempt,
    close_attempts,
    has_returned,
    note_return,
    provider_page,
)
from payments_integration.checkout.order_pages import OrderPage, order_page
from payments_integration.checkout.payment_methods import Method, method_field, method_name, methods
from payments_integration.checkout.refusals import explain
from payments_integration.checkout.steps import Step, timeline
from payments_integration.checkout.views import (
    CheckoutReturnView,
    CheckoutStatusDataView,
    CheckoutStatusView,
    CheckoutView,
)
from payments_integration.payer.links import receipt_url, return_url, status_url
from payments_integration.payer.reading import refreshed

__all__ = [
    "CheckoutReturnView",
    "CheckoutStatusDataView",
    "CheckoutStatusView",
    "CheckoutView",
    "Method",
    "OrderPage",
    "Step",
    "cancel_attempt",
    "close_attempts",
    "explain",
    "has_returned",
    "method_field",
    "method_name",
    "methods",
    "note_return",
    "order_page",
    "provider_page",
    "receipt_url",
    "refreshed",
    "return_url",
    "status_url",
    "timeline",
]
