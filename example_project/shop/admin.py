"""Orders with their payments. Refunds are made on the payment's page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy as _

from example_project.shop.models import DepositAccount, Notice, Order, Price, Product
from payments_integration.payable.admin import PaymentColumns


class PriceInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Price
    extra = 0


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["name", "slug"]
    inlines = [PriceInline]


def _never(self: Any, request: HttpRequest, obj: Any = None) -> bool:
    return False


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that only code writes."""

    has_add_permission = has_change_permission = has_delete_permission = _never


@admin.register(Order)
class OrderAdmin(PaymentColumns, ReadOnlyAdmin):
    list_display = ["reference", "product", "payment_price", "status", "note_shown", "payment_link", "email"]
    list_filter = ["status", ("note", admin.EmptyFieldListFilter), "currency", "country"]
    search_fields = ["reference", "email", "name"]
    date_hierarchy = "created_at"
    list_select_related = ["product"]
    fields = [
        "reference", "product", "quantity", "payment_price", "status", "note_shown", "payment_totals", "key",
        "payment_links", "country", "method_code", "flow", "name", "email", "created_at", "paid_at",
    ]  # fmt: skip

    @admin.display(description=_("note"))
    def note_shown(self, order: Any) -> str:
        """Notes are stored in English; those without a figure in them are translated."""
        return gettext(order.note) if order.note else "-"


@admin.register(DepositAccount)
class DepositAccountAdmin(ReadOnlyAdmin):
    list_display = ["reference", "email", "currency", "country", "created_at"]
    list_filter = ["currency"]
    search_fields = ["reference", "email"]


@admin.register(Notice)
class NoticeAdmin(ReadOnlyAdmin):
    list_display = ["dispatched_at", "type", "object_id", "event_id", "is_stale"]
    list_filter = ["type", "is_stale"]
    search_fields = ["event_id", "object_id"]
