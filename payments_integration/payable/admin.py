"""Add payment columns and a filter to the admin of a merchant's orders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import router
from django.db.models import QuerySet, Subquery, Value
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from payments_integration.models import Payment
from payments_integration.money import format_money
from payments_integration.payable import prices, sql
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    # Generic for type checkers only.
    AnyAdmin = admin.ModelAdmin[Any]
else:
    AnyAdmin = object

_EMPTY = "-"


class PaymentColumns(AnyAdmin):
    """Columns for the ``ModelAdmin`` of a ``Payable``: name them in ``list_display`` or ``fields``.

    The columns are ``payment_price``, ``payment_link`` (the newest payment), ``payment_links`` (every attempt) and
    ``payment_totals``. ``payment_link`` needs no query per row, unless the rows are in another database than the
    payments. Put the class before ``ModelAdmin``. A form needs its columns in ``readonly_fields``.
    """

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        site = self.admin_site
        may_open = site.is_registered(Payment) and site.get_model_admin(Payment).has_view_permission(request)
        # A column does not know who looks.
        rows: QuerySet[Any] = super().get_queryset(request).annotate(_may_open_payments=Value(may_open))
        if not _is_apart(rows):
            newest = sql.payments_of_row(self.model)[:1]
            rows = rows.annotate(
                _newest_payment=Subquery(newest.values("pk")), _newest_payment_status=Subquery(newest.values("status"))
            )
        return rows

    @admin.display(description=_("price"))
    def payment_price(self, order: Any) -> str:
        try:
            price = order.payments_price()
            return format_money(*price) if price is not None else _EMPTY
        except (TypeError, ValueError) as error:
            # One wrong price, such as in another currency, must not hide the list.
            return f"{_EMPTY} ({error})"

    @admin.display(description=_("payment"))
    def payment_link(self, order: Any) -> str:
        if not hasattr(order, "_newest_payment"):  # see ``_is_apart``
            newest = order.payments.first()
            return self._link(order, newest.pk, newest.status) if newest is not None else _EMPTY
        if order._newest_payment is None:
            return _EMPTY
        return self._link(order, order._newest_payment, order._newest_payment_status)

    @admin.display(description=_("payments"))
    def payment_links(self, order: Any) -> str:
        """Return a link to every attempt, newest first."""
        links = ((self._link(order, payment.pk, payment.status),) for payment in order.payments)
        return format_html_join(", ", "{}", links) or _EMPTY

    @admin.display(description=_("money"))
    def payment_totals(self, order: Any) -> str:
        """Return the totals of all attempts, in each currency."""
        return "; ".join(map(_sums, order.totals().values())) or _EMPTY

    def _link(self, order: Any, payment_id: str, status: str) -> SafeString:
        words = dict(Payment.Status.choices).get(status, status)
        # An order of another queryset has no answer.
        if not getattr(order, "_may_open_payments", False):
            return format_html("{} ({})", payment_id, words)
        site = self.admin_site.name
        url = reverse("admin:payments_integration_payment_change", args=[quote(payment_id)], current_app=site)
        return format_html('<a href="{}">{}</a> ({})', url, payment_id, words)


def _sums(totals: Any) -> str:
    amounts = {
        _("received"): totals.received,
        _("refunded"): totals.refunded,
        _("charged back"): totals.charged_back,
        _("kept"): totals.kept,
        _("in progress"): totals.in_progress,
        _("held"): totals.held,
    }
    return ", ".join(f"{name} {format_money(amount, totals.currency)}" for name, amount in amounts.items())


class PaidFilter(admin.SimpleListFilter):
    """Filter orders by paid, not paid and overpaid. The model must name its price.

    ``list_filter = [PaidFilter, "created_at"]`` shows which orders of a day are not paid.
    """

    title: StrOrPromise = _("payments")
    parameter_name: str | None = "paid"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, StrOrPromise]]:
        # Fail when the page opens, not at the first click on the filter.
        prices.require(model_admin.model)
        return [("yes", _("paid")), ("no", _("not paid")), ("over", _("overpaid"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        # Keep the model admin's own queryset, if it has one.
        found = {"yes": sql.paid, "no": sql.unpaid, "over": sql.overpaid}.get(str(self.value()))
        return found(_beside_payments(queryset)) if found else queryset


def _beside_payments(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows in the payments' database if they are written to it. A router may read them from a replica."""
    payments = Payment.objects.all().db
    return rows if rows.db == payments or _is_apart(rows) else rows.using(payments)


def _is_apart(rows: QuerySet[Any]) -> bool:
    """Return True if the rows are kept in another database than the payments, so that no SQL joins them."""
    payments = Payment.objects.all().db
    return rows.db != payments and router.db_for_write(rows.model) != payments
