"""Orders with their payments. Refunds are made on the payment's page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy as _

from example_project.shop.models import DepositAccount, Notice, Order, Price, Product
from payments_integration.models import Payment
from payments_integration.money import format_money

if TYPE_CHECKING:
    # Generic for type checkers only.
    AnyAdmin = admin.ModelAdmin[Any]
    AnyInline = admin.TabularInline[Any, Any]
else:
    AnyAdmin = admin.ModelAdmin
    AnyInline = admin.TabularInline


class PriceInline(AnyInline):
    model = Price
    extra = 0


@admin.register(Product)
class ProductAdmin(AnyAdmin):
    list_display = ["name", "slug"]
    inlines = [PriceInline]


class ReadOnlyAdmin(AnyAdmin):
    """Rows that only code writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Order)
class OrderAdmin(ReadOnlyAdmin):
    list_display = ["reference", "product", "price", "status", "note_shown", "payment_link", "email", "created_at"]
    list_filter = ["status", ("note", admin.EmptyFieldListFilter), "currency", "country"]
    search_fields = ["reference", "email", "name"]
    date_hierarchy = "created_at"
    list_select_related = ["product"]
    fields = [
        "reference", "product", "quantity", "price", "status", "note_shown", "money", "key", "payment_links",
        "country", "method_code", "flow", "name", "email", "created_at", "paid_at",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        payments = Payment.objects.filter(account="default", merchant_reference=OuterRef("reference"))
        newest = payments.order_by("-created_at", "-pk")[:1]
        orders: QuerySet[Any] = (
            super()
            .get_queryset(request)
            .annotate(payment_pk=Subquery(newest.values("pk")), payment_status=Subquery(newest.values("status")))
        )
        return orders

    @admin.display(description=_("price"))
    def price(self, order: Any) -> str:
        return format_money(order.amount, order.currency)

    @admin.display(description=_("payment"))
    def payment_link(self, order: Any) -> str:
        if order.payment_pk is None:
            return "-"
        url = reverse("admin:payments_integration_payment_change", args=[quote(order.payment_pk)])
        return format_html('<a href="{}">{}</a> ({})', url, order.payment_pk, _status(order.payment_status))

    @admin.display(description=_("payments"))
    def payment_links(self, order: Any) -> str:
        """Every attempt, newest first."""
        links = (
            (
                reverse("admin:payments_integration_payment_change", args=[quote(each.pk)]),
                each.pk,
                _status(each.status),
            )
            for each in order.payments
        )
        return format_html_join(", ", '<a href="{}">{}</a> ({})', links) or "-"

    @admin.display(description=_("money"))
    def money(self, order: Any) -> str:
        """The totals of all attempts."""
        totals = order.totals_in(order.currency)
        amounts = {
            _("received"): totals.received,
            _("refunded"): totals.refunded,
            _("charged back"): totals.charged_back,
            _("kept"): totals.kept,
            _("in progress"): totals.in_progress,
            _("held"): totals.held,
        }
        return ", ".join(f"{name} {format_money(amount, order.currency)}" for name, amount in amounts.items())

    @admin.display(description=_("note"))
    def note_shown(self, order: Any) -> str:
        """Notes are stored in English; those without a figure in them are translated."""
        return gettext(order.note) if order.note else "-"


def _status(status: str) -> Any:
    """A payment's status in the same words as in the app's admin."""
    return dict(Payment.Status.choices).get(status, status)


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
