"""URLs of an admin with the core's pages alone, as in a project without the back office."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.urls import include, path

from payments_integration import models
from payments_integration.admin.models import (
    balances,
    deposit_references,
    events,
    operations,
    payments,
    payouts,
    reconciliation,
    refunds,
    webhook_endpoints,
)

PAGES = {
    models.Payment: payments.PaymentAdmin,
    models.Payout: payouts.PayoutAdmin,
    models.Refund: refunds.RefundAdmin,
    models.DepositReference: deposit_references.DepositReferenceAdmin,
    models.Balance: balances.BalanceAdmin,
    models.Event: events.EventAdmin,
    models.StatusChange: events.StatusChangeAdmin,
    models.Operation: operations.OperationAdmin,
    models.ReconciliationRun: reconciliation.ReconciliationRunAdmin,
    models.WebhookEndpoint: webhook_endpoints.WebhookEndpointAdmin,
}
site = AdminSite(name="alone")
for model, model_admin in PAGES.items():
    site.register(model, model_admin)

urlpatterns = [path("admin/", site.urls), path("payments/", include("payments_integration.urls"))]
