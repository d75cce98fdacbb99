"""Models of a merchant that know their payments. Their tables are the receivers', which need no migration."""

from __future__ import annotations

import uuid
from datetime import date

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


class Sale(Payable):
    """Knows its price, in minor units."""

    # Not unique: for MariaDB, references that differ in case are the same.
    number = models.CharField(max_length=32, null=True)
    amount = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=8, null=True)
    sold_on = models.DateField(default=date(2026, 1, 1), db_index=True)

    merchant_reference_field = "number"
    payments_amount_field = "amount"
    payments_currency_field = "currency"

    class Meta:
        app_label = "receivers"

    def __str__(self) -> str:
        return str(self.number)


class Booking(Payable):
    """Knows its price in whole units; paid through the account that the row names."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    total = models.DecimalField(max_digits=14, decimal_places=3, null=True)
    currency = models.CharField(max_length=8)
    brand = models.CharField(max_length=64, null=True)

    merchant_reference_field = "id"
    payments_account_field = "brand"
    payments_amount_field = "total"
    payments_currency_field = "currency"

    class Meta:
        app_label = "receivers"

    def __str__(self) -> str:
        return str(self.pk)


class Ticket(Payable):
    """In one currency, paid through any account, also by deposits; its number is the reference."""

    total = models.DecimalField(max_digits=9, decimal_places=2)

    merchant_reference_field = "id"
    payments_account = None
    payments_include_deposits = True
    payments_amount_field = "total"
    payments_currency = "CLP"

    class Meta:
        app_label = "receivers"

    def __str__(self) -> str:
        return str(self.pk)


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
