"""The shop's own rows: products, prices, orders, customers' accounts. The mirror has the payments."""

from __future__ import annotations

import secrets
from typing import Any

from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import get_language, gettext_lazy as _

from payments_integration.enums import Country, Currency, Flow
from payments_integration.models import DepositReference, Payment
from payments_integration.money import format_for_payer, format_money
from payments_integration.payable import OrderStatus, Payable, current_payment

#: The products of which there is a picture in ``static/shop/products/``.
DRAWN = ("blanket", "chocolate", "coffee", "hammock")


class Product(models.Model):
    """Its name and description are in English; the others stand in for them in their languages, unless empty."""

    slug = models.SlugField(_("slug"), unique=True)
    name = models.CharField(_("name"), max_length=100)
    description = models.TextField(_("description"))
    name_es = models.CharField(_("name in Spanish"), max_length=100, blank=True, default="")
    description_es = models.TextField(_("description in Spanish"), blank=True, default="")
    name_pt = models.CharField(_("name in Portuguese"), max_length=100, blank=True, default="")
    description_pt = models.TextField(_("description in Portuguese"), blank=True, default="")

    class Meta:
        verbose_name = _("product")
        verbose_name_plural = _("products")
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("shop:buy", kwargs={"slug": self.slug})

    @property
    def shown_name(self) -> str:
        return self._in_language("name")

    @property
    def shown_description(self) -> str:
        return self._in_language("description")

    @property
    def picture(self) -> str:
        """The static path of a drawing."""
        return f"shop/products/{self.slug if self.slug in DRAWN else 'other'}.svg"

    def _in_language(self, field: str) -> str:
        return str(getattr(self, f"{field}_{(get_language() or '')[:2]}", "") or getattr(self, field))


class Price(models.Model):
    """What one piece costs, in minor units of a currency. Prices are set, not converted."""

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="prices", verbose_name=_("product"))
    currency = models.CharField(_("currency"), max_length=3, choices=Currency)
    amount = models.BigIntegerField(_("amount"))

    class Meta:
        verbose_name = _("price")
        verbose_name_plural = _("prices")
        constraints = [models.UniqueConstraint(fields=["product", "currency"], name="shop_one_price")]

    def __str__(self) -> str:
        # With the code: a price belongs to no country, and ``$`` stands for four of these currencies.
        return format_money(self.amount, self.currency)


def new_reference() -> str:
    """An order's public name: short enough to read out, too long to guess."""
    return f"ORD-{secrets.token_hex(6).upper()}"


def new_account_reference() -> str:
    """The same for a customer's account; no order has such a name."""
    return f"ACC-{secrets.token_hex(8).upper()}"


class Order(Payable):
    """One purchase. Every attempt to pay for it is a payment with ``merchant_reference == reference``."""

    #: Created with the form, so that a form sent twice is one order.
    submission = models.CharField(_("submission"), max_length=64, unique=True)
    reference = models.CharField(_("reference"), max_length=32, unique=True, default=new_reference)
    product = models.ForeignKey(Product, on_delete=models.PROTECT, verbose_name=_("product"))
    quantity = models.PositiveIntegerField(_("quantity"), default=1)
    #: Minor units.
    amount = models.BigIntegerField(_("amount"))
    currency = models.CharField(_("currency"), max_length=3, choices=Currency)
    country = models.CharField(_("country"), max_length=2, choices=Country)
    #: The idempotency key of the current attempt (``attempt_key``), and how it is paid.
    key = models.CharField(_("idempotency key"), max_length=255)
    method_code = models.CharField(_("method code"), max_length=255)
    flow = models.CharField(_("flow"), max_length=32, choices=Flow, default=Flow.HOSTED)
    #: Why this attempt was refused, as a code.
    refusal = models.CharField(_("refusal"), max_length=100, default="", blank=True)
    name = models.CharField(_("name"), max_length=100)
    email = models.EmailField(_("email"))
    status = models.CharField(_("status"), max_length=24, choices=OrderStatus, default=OrderStatus.NEW)
    #: For the shop's staff.
    note = models.CharField(_("note"), max_length=255, default="", blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    paid_at = models.DateTimeField(_("paid at"), null=True, blank=True)

    merchant_reference_field = "reference"
    payments_amount_field, payments_currency_field = "amount", "currency"
    payments_paid = models.Q(paid_at__isnull=False)

    class Meta:
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        ordering = ["-created_at", "-pk"]
        get_latest_by = "created_at"
        indexes = [models.Index(fields=["created_at"], name="shop_order_created")]

    def __str__(self) -> str:
        return self.reference

    def get_absolute_url(self) -> str:
        return reverse("shop:order", kwargs={"reference": self.reference})

    def save(self, *args: Any, **kwargs: Any) -> None:
        # Stored, so that a form sent twice is one attempt, even if the first is declined in between.
        self.key = self.key or self.attempt_key()
        super().save(*args, **kwargs)

    @property
    def price(self) -> str:
        return format_for_payer(self.amount, self.currency, self.country)

    @property
    def payment(self) -> Payment | None:
        """The attempt that is open, or the newest one. None until the mirror has one."""
        return current_payment(list(self.payments))


class DepositAccount(Payable):
    """A permanent account that a customer transfers to: one for each e-mail address and currency."""

    reference = models.CharField(_("reference"), max_length=32, unique=True, default=new_account_reference)
    #: In lower case.
    email = models.EmailField(_("email"))
    name = models.CharField(_("name"), max_length=100)
    country = models.CharField(_("country"), max_length=2, choices=Country)
    currency = models.CharField(_("currency"), max_length=3, choices=Currency)
    method_code = models.CharField(_("method code"), max_length=255)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)

    merchant_reference_field = "reference"
    payments_include_deposits = True

    class Meta:
        verbose_name = _("deposit account")
        verbose_name_plural = _("deposit accounts")
        ordering = ["-created_at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["email", "currency"], name="shop_one_account")]

    def __str__(self) -> str:
        return self.reference

    def get_absolute_url(self) -> str:
        return reverse("shop:deposit", kwargs={"reference": self.reference})

    @property
    def deposit_reference(self) -> DepositReference | None:
        """The provider's object, as mirrored; None until it is known."""
        return DepositReference.objects.filter(account="default", merchant_reference=self.reference).first()


class Notice(models.Model):
    """One event dispatched to the shop's handlers. A row each time, so that a second dispatch would show."""

    event_id = models.CharField(_("event id"), max_length=255)
    type = models.CharField(_("type"), max_length=255)
    object_id = models.CharField(_("object id"), max_length=255)
    is_stale = models.BooleanField(_("is stale"))
    dispatched_at = models.DateTimeField(_("dispatched at"), default=timezone.now)

    class Meta:
        verbose_name = _("notice")
        verbose_name_plural = _("notices")
        ordering = ["-pk"]
        indexes = [models.Index(fields=["event_id"], name="shop_notice_event")]

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"
