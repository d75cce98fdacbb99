"""Provide pages that do something: each calls one service, most of them after a confirmation.

They are loaded when the first one is opened, because Django imports the model pages in every process, even where no
admin page is ever served.
"""

from typing import TYPE_CHECKING

from payments_integration.runtime import lazy

if TYPE_CHECKING:
    from payments_integration.admin.flows.payout import PayoutPage as PayoutPage
    from payments_integration.admin.flows.refund import RefundPage as RefundPage
    from payments_integration.admin.flows.webhook_endpoint import WebhookEndpointPage as WebhookEndpointPage
else:
    __getattr__, __dir__, __all__ = lazy.exports(__name__)
