from django.db import models

from payments_integration.payable import Payable


class Order(Payable):
    number = models.CharField(max_length=32, unique=True)
    amount = models.BigIntegerField()
    total = models.DecimalField(max_digits=12, decimal_places=2, default=0)
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=32)
    paid_at = models.DateTimeField(null=True)

    merchant_reference_field = "number"

    def __str__(self) -> str:
        return str(self.number)
