"""An order. It knows its price; the mirror knows its payments."""

import uuid

from django.db import models
from django.urls import reverse

from payments_integration.payable import Payable


class Order(Payable):
    #: Also in the order's address, because it cannot be guessed.
    number = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    #: Minor units; CLP has no decimals.
    amount = models.BigIntegerField()
    email = models.EmailField()
    paid_at = models.DateTimeField(null=True, editable=False)

    merchant_reference_field = "number"
    payments_amount_field, payments_currency = "amount", "CLP"
    payments_paid = models.Q(paid_at__isnull=False)

    def get_absolute_url(self) -> str:
        return reverse("pay", args=[self.number])
