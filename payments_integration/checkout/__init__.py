"""Show a payment to its payer: template tags, a status page and a return page.

Load the tags with ``{% load payments_integration %}``. ``return_url`` and ``status_url`` make the pages' addresses.
You can subclass the views. The other names are for an order page of your own. See ``docs/checkout.md``.
"""

from payments_integration.checkout.attempts import (
    cancel_attempt as cancel_attempt,
    close_attempts as close_attempts,
    has_returned as has_returned,
    note_return as note_return,
    provider_page as provider_page,
)
from payments_integration.checkout.order_pages import OrderPage as OrderPage, order_page as order_page
from payments_integration.checkout.payment_methods import (
    Method as Method,
    method_field as method_field,
    method_name as method_name,
    methods as methods,
)
from payments_integration.checkout.refusals import explain as explain
from payments_integration.checkout.steps import Step as Step, timeline as timeline
from payments_integration.checkout.views import (
    CheckoutReturnView as CheckoutReturnView,
    CheckoutStatusDataView as CheckoutStatusDataView,
    CheckoutStatusView as CheckoutStatusView,
    CheckoutView as CheckoutView,
)
from payments_integration.payer.links import (
    receipt_url as receipt_url,
    return_url as return_url,
    status_url as status_url,
)
from payments_integration.payer.reading import refreshed as refreshed
