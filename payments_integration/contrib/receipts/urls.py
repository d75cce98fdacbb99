"""Include these under any prefix: ``path("payments/", include("payments_integration.contrib.receipts.urls"))``."""

from django.urls import path

from payments_integration.contrib.receipts.views import ReceiptView

app_name = "payments_receipts"
urlpatterns = [path("receipt/<str:token>/", ReceiptView.as_view(), name="receipt")]
