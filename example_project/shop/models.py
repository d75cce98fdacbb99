"""What the shop itself keeps: products, prices, orders. The money is the payment app's: the mirror is asked for it."""

from __future__ import annotations

import secrets

from django.db import models
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from example_project.shop.money import show_money
from payments_integration.enums import Country, Currency, Flow
from payments_integration.models import Payment


class Product(models.Model):
    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100)
    description = models.TextField()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("shop:buy", kwargs={"slug": self.slug})

    @property
    def symbol(self) -> str:
        """A picture that needs no file."""
        return self.name[:2]


class Price(models.Model):
    """What one piece costs, in minor units of a currency. Prices are set, not converted."""

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="prices")
    currency = models.CharField(max_length=3, choices=Currency)
    amount = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["product", "currency"], name="shop_one_price")]

    def __str__(self) -> str:
        return show_money(self.amount, self.currency)


class OrderStatus(models.TextChoices):
    NEW = "new", "waiting for payment"
    REVIEW = "review", "being reviewed"
    PARTIALLY_PAID = "partially_paid", "paid in part"
    PAID = "paid", "paid"
    FAILED = "failed", "payment failed"
    EXPIRED = "expired", "payment expired"
    CANCELED = "canceled", "canceled"
    PARTIALLY_REFUNDED = "partially_refunded", "refunded in part"
    REFUNDED = "refunded", "refunded"
    CHARGEBACK = "chargeback", "charged back"
    #: The provider refused to set up a payment; nothing can arrive.
    REFUSED = "refused", "not accepted"


def new_reference() -> str:
    """An order's public name: short enough to read out, too long to guess."""
    return f"ORD-{secrets.token_hex(6).upper()}"


class Order(models.Model):
    """One purchase. Its payment is found by ``merchant_reference == reference``."""

    #: Made with the form that is shown, so that a form sent twice is one order.
    submission = models.CharField(max_length=64, unique=True)
    reference = models.CharField(max_length=32, unique=True, default=new_reference)
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveIntegerField(default=1)
    #: Minor units.
    amount = models.BigIntegerField()
    currency = models.CharField(max_length=3, choices=Currency)
    country = models.CharField(max_length=2, choices=Country)
    method_code = models.CharField(max_length=255)
    flow = models.CharField(max_length=32, choices=Flow, default=Flow.HOSTED)
    name = models.CharField(max_length=100)
    email = models.EmailField()
    status = models.CharField(max_length=24, choices=OrderStatus, default=OrderStatus.NEW)
    #: What a person at the shop should know.
    note = models.CharField(max_length=255, default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    paid_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["created_at"], name="shop_order_created")]

    def __str__(self) -> str:
        return self.reference

    def get_absolute_url(self) -> str:
        return reverse("shop:order", kwargs={"reference": self.reference})

    @property
    def price(self) -> str:
        return show_money(self.amount, self.currency)

    @property
    def payments(self) -> QuerySet[Payment]:
        return Payment.objects.filter(account="default", merchant_reference=self.reference).order_by("created_at")

    @property
    def payment(self) -> Payment | None:
        """The mirror of this order's payment, once there is one."""
        return self.payments.first()


class Notice(models.Model):
    """One event that the shop's handlers were told of: a row each time, so that a second telling would show."""

    event_id = models.CharField(max_length=255)
    type = models.CharField(max_length=255)
    object_id = models.CharField(max_length=255)
    is_stale = models.BooleanField()
    told_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["event_id"], name="shop_notice_event")]

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"
