"""Every address of the sandbox: the provider's interface as in its document, the pages and the controls."""

from __future__ import annotations

from django.urls import path, re_path

from . import checkout, contract, control, dashboard
from .views import api

urlpatterns = [
    path("v1/payment-methods", api, {"operations": {"GET": "list_payment_methods"}}),
    path("v1/payments", api, {"operations": {"GET": "list_payments", "POST": "create_payment"}}),
    path("v1/payments/<str:object_id>", api, {"operations": {"GET": "get_payment"}}),
    path("v1/payments/<str:object_id>/cancel", api, {"operations": {"POST": "cancel_payment"}}),
    path("v1/payouts", api, {"operations": {"GET": "list_payouts", "POST": "create_payout"}}),
    path("v1/payouts/<str:object_id>", api, {"operations": {"GET": "get_payout"}}),
    path("v1/payouts/<str:object_id>/cancel", api, {"operations": {"POST": "cancel_payout"}}),
    path("v1/refunds", api, {"operations": {"GET": "list_refunds", "POST": "create_refund"}}),
    path("v1/refunds/<str:object_id>", api, {"operations": {"GET": "get_refund"}}),
    path("v1/deposit-references", api, {"operations": {"POST": "create_deposit_reference"}}),
    path("v1/deposit-references/<str:object_id>", api, {"operations": {"GET": "get_deposit_reference"}}),
    path("v1/balances", api, {"operations": {"GET": "list_balances"}}),
    path(
        "v1/webhook-endpoints",
        api,
        {"operations": {"GET": "list_webhook_endpoints", "POST": "create_webhook_endpoint"}},
    ),
    path("v1/webhook-endpoints/<str:object_id>", api, {"operations": {"DELETE": "delete_webhook_endpoint"}}),
    path(
        "v1/webhook-endpoints/<str:object_id>/rotate-secret",
        api,
        {"operations": {"POST": "rotate_webhook_secret"}},
    ),
    path("v1/events", api, {"operations": {"GET": "list_events"}}),
    path("v1/events/<str:object_id>", api, {"operations": {"GET": "get_event"}}),
    re_path(r"^v1(?:/.*)?$", api, {"operations": {}}),
    path("openapi.json", contract.contract),
    path("", dashboard.home),
    path("checkout/<str:payment_id>", checkout.checkout),
    path("_sandbox/books", control.books),
    path("_sandbox/<str:collection>/<str:object_id>/<str:action>", control.move),
    path("_sandbox/<str:action>", control.act),
]
