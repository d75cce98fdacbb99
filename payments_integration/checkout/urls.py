"""Route the checkout pages. ``payments_integration.urls`` includes them under ``checkout/``."""

from django.urls import path

from payments_integration.checkout.views import CheckoutReturnView, CheckoutStatusDataView, CheckoutStatusView

urlpatterns = [
    path("status/<str:token>/", CheckoutStatusView.as_view(), name="checkout-status"),
    path("status/<str:token>/data/", CheckoutStatusDataView.as_view(), name="checkout-status-data"),
    path("return/<str:token>/", CheckoutReturnView.as_view(), name="checkout-return"),
]
