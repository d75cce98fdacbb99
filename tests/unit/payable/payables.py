"""Models of a merchant that know their payments. Their tables are the receivers', which need no migration."""

from __future__ import annotations

import uuid

from django.db import models

from payments_integration.payable import Payable


class Order(Payable):
    number = models.CharField(max_length=32, unique=True, null=True)
    amount = models.BigIntegerField(default=10_000)
    currency = models.CharField(max_length=3, default="CLP")
    paid_at = models.DateTimeField(null=True)

    merchant_reference_field = "number"

    class Meta:
        app_label = "receivers"

    def __str__(self) -> str:
        return str(self.number)


class Invoice(Payable):
    """Paid through the account that the row names; its number is the reference."""

    brand = models.CharField(max_length=64)

    merchant_reference_field = "id"
    payments_account_field = "brand"

    class Meta:
        app_label = "receivers"

    def __str__(self) -> str:
        return str(self.pk)


class Customer(Payable):
    """Pays by transfers to a deposit reference, through any account."""

    code = models.UUIDField(unique=True, default=uuid.uuid4)

    merchant_reference_field = "code"
    payments_account = None
    payments_include_deposits = True

    class Meta:
        app_label = "receivers"

    def __str__(self) -> str:
        return str(self.code)
