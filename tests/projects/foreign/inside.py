"""What the walk asks a site for. It is copied into the project and runs there: ``manage.py shell -c …``.

Each function prints one line of JSON, the last one of the output.
"""

from __future__ import annotations

import json
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Group
from django.test import RequestFactory
from django.urls import URLPattern, reverse
from django.utils import timezone

from payments_integration import services
from payments_integration.contrib.backoffice import notes
from payments_integration.contrib.receipts.models import ReceiptMail
from payments_integration.models import DueRefresh, Payment, Refund
from payments_integration.payer import links
from payments_integration.reconciliation.due import LONGEST_BACKOFF


def create() -> None:
    """Objects at the provider, as a merchant's code makes them. Prints the payments' ids."""
    card: dict[str, Any] = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
    payer = {"name": "Ana Soto", "email": "ana@example.com", "document": {"type": "RUT", "number": "12345678-5"}}
    payments = [services.create_payment(**card, payer=payer, merchant_reference=f"order-{n}") for n in range(4)]
    notes.add(payments[0], "The payer called.", author="the walk")
    services.create_deposit_reference(country="MX", currency="MXN", method_code="mx_deposit")
    services.create_payout(
        amount=5_000, currency="CLP", country="CL", method_code="cl_bank_transfer",
        destination={
            "type": "bank_account", "bank_code": "012", "account_number": "000123456", "account_type": "checking",
            "holder_name": "Ana Soto", "holder_document": {"type": "RUT", "number": "12345678-5"},
        },
    )  # fmt: skip
    services.sync_balances()
    services.sync_webhook_endpoints()
    ReceiptMail.objects.create(account="default", payment_id=payments[0].pk, state="sent")
    # Deleted when it is done, and so due after the walk, as late as any can be.
    DueRefresh.objects.create(
        account="default", object_kind="payment", object_id=payments[3].pk, reason="drift",
        due_at=timezone.now() + LONGEST_BACKOFF,
    )  # fmt: skip
    print(json.dumps([payment.pk for payment in payments]))


def mirrored() -> None:
    """Prints the status of every payment and refund, by id, and the payments that the handler was called for."""
    statuses = [*Payment.objects.values_list("pk", "status"), *Refund.objects.values_list("pk", "status")]
    handled = Group.objects.filter(name__startswith="paid ").values_list("name", flat=True)
    print(json.dumps({"statuses": dict(statuses), "handled": sorted(name.partition(" ")[2] for name in handled)}))


def pages() -> None:
    """Prints every page of the app's admin, by name: its addresses, one for each of up to three rows. And others."""
    found: dict[str, list[str]] = {}

    def walk(patterns: Any, label: str) -> None:
        for pattern in patterns:
            if not isinstance(pattern, URLPattern):
                walk(pattern.url_patterns, label)
            elif pattern.name and pattern.name.startswith(f"{label}_"):
                rows: list[list[str]] = [[]]
                names = pattern.pattern.converters
                if "object_id" in names or "payment_id" in names:
                    own = apps.get_model(label, pattern.name.removeprefix(f"{label}_").partition("_")[0])
                    model = own if "object_id" in names else Payment
                    rows = [[quote(str(row.pk))] for row in model._default_manager.order_by("-pk")[:3]]
                found[pattern.name] = [reverse(f"admin:{pattern.name}", args=row) for row in rows]

    for label in ("payments_integration", "payments_finance", "payments_backoffice", "payments_receipts"):
        walk(admin.site.get_urls(), label)
        found[label] = [reverse("admin:app_list", kwargs={"app_label": label})]
    here = RequestFactory().get("/", headers={"host": "127.0.0.1"})
    found["checkout"] = [
        links.status_url(here, payment).partition("127.0.0.1")[2] for payment in Payment.objects.all()
    ]
    found["api"] = [reverse("payments_integration:api-payment-list"), reverse("payments_integration:api-schema")]
    print(json.dumps(found))
