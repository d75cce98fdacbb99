"""Include under any prefix: ``path("payments/", include("payments_integration.contrib.finance.urls"))``."""

from django.urls import path

from payments_integration.contrib.finance.receipts import ReceiptView

app_name = "payments_finance"
urlpatterns = [path("receipt/<str:token>/", ReceiptView.as_view(), name="receipt")]
