"""The checkout pages as the app has them, and some that a project made its own."""

from __future__ import annotations

from django.urls import include, path

from payments_integration.checkout import CheckoutReturnView, CheckoutStatusView
from payments_integration.models import Payment


class OwnReturnView(CheckoutReturnView):
    def get_next_url(self, payment: Payment | None) -> str:
        return f"/orders/{self.subject.merchant_reference}/{payment.status if payment else 'none'}/"


class ShortStatusView(CheckoutStatusView):
    max_age = 60
    extra_context = {"amount": "as the shop says it"}


app = ([path("checkout/", include("payments_integration.checkout.urls"))], "payments_integration")
urlpatterns = [
    path("payments/", include(app)),
    path("own/return/<str:token>/", OwnReturnView.as_view(), name="own-return"),
    path("own/status/<str:token>/", ShortStatusView.as_view(), name="own-status"),
]
