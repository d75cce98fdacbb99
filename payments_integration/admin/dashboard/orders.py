"""Orders that do not match their payments: their tiles on the overview, and the page with their rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.utils.formats import number_format
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.dashboard import statistics
from payments_integration.admin.dashboard.account_page import AccountPage, Tile
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import may_view
from payments_integration.admin.shared.sections import Table
from payments_integration.models import Payment
from payments_integration.payable import comparison

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin
    from payments_integration.payable import Payable
    from payments_integration.payable.comparison import OrderRow

UNPAID = _("Payments whose order is not paid")
UNPAID_ADVICE = _("Mark the order as paid and deliver, or refund the payment.")
WITHOUT_PAYMENT = _("Paid orders without a payment")
WITHOUT_PAYMENT_ADVICE = _("Find out why the order is marked as paid. Do not deliver before the money is here.")


def tiles(
    site: AdminSite, request: HttpRequest, account: str, counts: comparison.Counts | None, chosen: dict[str, str]
) -> Iterator[Tile]:
    """``counts``: None without a model to compare. ``chosen``: the account's query parameter."""
    if counts is None or not may_view(site, request, Payment):
        return
    url = f"{display.page_url(site, Payment, 'orders')}?{urlencode(chosen)}".removesuffix("?")
    yield Tile(UNPAID, counts.paid_for_and_unpaid, "", url, advice=UNPAID_ADVICE)
    seen = [model for model in comparison.compared_models(account) if _may_see(site, request, model)]
    if seen:
        without = sum(counts.paid_without_payment.get(model._meta.label, 0) for model in seen)
        yield Tile(WITHOUT_PAYMENT, without, "", url, advice=WITHOUT_PAYMENT_ADVICE)


class OrdersPage(AccountPage):
    """The rows that the tiles count."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        super().__init__(model_admin.admin_site, request)
        self._admin = model_admin

    def respond(self) -> HttpResponse:
        if not self.sees(Payment):
            raise PermissionDenied
        if self._request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        title = _("Orders and payments that do not match")
        compared = comparison.compared_models(self.account)
        since = statistics.last_days().bounds[0]
        context = {
            "title": title,
            "accounts": list(self._accounts()),
            "compared": [model._meta.verbose_name_plural for model in compared],
            "limit": number_format(comparison.LIMIT, use_l10n=True, force_grouping=True),
            "tables": [self._unpaid(since), *self._without_payment(compared, since)] if compared else [],
        }
        return self._admin.render_page(
            self._request, "admin/payments_integration/payment/orders.html", context, [("", title)]
        )

    def _unpaid(self, since: datetime) -> Table:
        rows: list[tuple[str, ...]] = [
            (
                display.admin_link(self._site, Payment, payment.pk),
                display.status(payment.status, Payment.Status),
                display.money(payment.amount_received, payment.currency),
                self._order(row),
                display.moment(payment.succeeded_at or payment.created_at),
            )
            for payment, row in comparison.paid_for_and_unpaid(self.account, since)
        ]
        columns = (_("Payment"), _("Status"), _("Received"), _("Order number"), _("Paid at"))
        return Table(UNPAID, columns, rows, "", UNPAID_ADVICE)

    def _without_payment(self, compared: list[type[Payable]], since: datetime) -> Iterator[Table]:
        for model in compared:
            if _may_see(self._site, self._request, model):
                found = comparison.paid_without_payment(model, self.account, since)
                rows: list[tuple[str, ...]] = [(self._order(row),) for row in found]
                columns = (capfirst(str(model._meta.verbose_name)),)
                yield Table(WITHOUT_PAYMENT, columns, rows, "", WITHOUT_PAYMENT_ADVICE)

    def _order(self, row: OrderRow) -> str:
        """The order's reference, with a link where the user may see its page."""
        if may_view(self._site, self._request, row.model):
            return display.admin_link(self._site, row.model, row.pk, row.reference)
        return display.text(row.reference)


def _may_see(site: AdminSite, request: HttpRequest, model: type[Model]) -> bool:
    """Whether the user may see rows of a merchant's model, which may have no page in the admin."""
    if site.is_registered(model):
        return may_view(site, request, model)
    user = request.user
    return user.is_active and user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")
