"""Balances: the merchant's money at the provider, and how it changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, services
from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import Tool
from payments_integration.admin.shared.display import explain
from payments_integration.admin.shared.sections import SCRIPTS, STYLES, Page, Section
from payments_integration.exceptions import PaymentsError
from payments_integration.models import Balance, BalanceChange
from payments_integration.money import exponent, format_money

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    from payments_integration.admin.dashboard.charts import Chart

#: The changes that a balance's chart shows.
MAX_CHANGES = 200
_AMOUNTS: dict[str, StrOrPromise] = {
    "available": gettext_lazy("available"),
    "pending": gettext_lazy("pending"),
    "reserve": gettext_lazy("reserve"),
    "hold": gettext_lazy("hold"),
    "debt": gettext_lazy("debt"),
}


@dataclass(frozen=True, slots=True)
class ChartSection(Section):
    """The newest changes, as a chart and a table."""

    template: ClassVar[str] = "admin/payments_integration/includes/chart_section.html"

    chart: Chart


@admin.register(Balance)
class BalanceAdmin(MirrorAdmin):
    list_display = (
        "currency", "available_shown", "pending_shown", "reserve_shown", "hold_shown", "debt_shown", "account",
        "updated_at",
    )  # fmt: skip
    list_filter = (filters.CURRENCY, filters.ACCOUNT)
    ordering = ("account", "currency")
    sortable_by = ()
    export = ("account", "currency", "available", "pending", "reserve", "hold", "debt", "updated_at")
    fieldsets = (
        (
            None,
            {"fields": ("currency", "available_shown", "pending_shown", "reserve_shown", "hold_shown", "debt_shown")},
        ),
        (gettext_lazy("Times"), {"fields": ("updated_at",)}),
        MIRROR_FIELDS,
    )

    available_shown = columns.money("available", _AMOUNTS["available"])
    pending_shown = columns.money("pending", _AMOUNTS["pending"])
    reserve_shown = columns.money("reserve", _AMOUNTS["reserve"])
    hold_shown = columns.money("hold", _AMOUNTS["hold"])
    debt_shown = columns.money("debt", _AMOUNTS["debt"])

    class Media:
        css = {"all": STYLES}
        js = SCRIPTS

    def sections(self, page: Page, obj: Balance) -> Iterable[Section]:
        yield ChartSection(balance_chart(obj))
        yield from super().sections(page, obj)

    def get_urls(self) -> list[URLPattern]:
        return [self.list_path("refresh-all", self.refresh_view), *super().get_urls()]

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        url = reverse(f"admin:{self.url_name('refresh-all')}", current_app=self.admin_site.name)
        yield Tool(gettext_lazy("Refresh"), url)

    def refresh_view(self, request: HttpRequest) -> HttpResponse:
        """Read the balances of every account. It changes nothing at the provider: the view permission is enough."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        for account in conf.aliases():
            try:
                services.sync_balances(account=account)
            except (PaymentsError, ImproperlyConfigured) as error:
                words = explain(self.admin_site, error)
                self.message_user(request, f"{account}: {words}", messages.ERROR)
            else:
                words = _("The balances of the account %(account)s were refreshed.") % {"account": account}
                self.message_user(request, words, messages.SUCCESS)
        return HttpResponseRedirect(display.list_url(self.admin_site, self.model))


def balance_chart(balance: Balance) -> Chart:
    """Each amount over time: the newest changes, oldest first."""
    # Loaded with the first chart, not at start-up.
    from payments_integration.admin.dashboard.charts import Chart, Series  # noqa: PLC0415

    newest = BalanceChange.objects.filter(balance=balance).order_by("-at", "-pk")[:MAX_CHANGES]
    changes = list(newest)[::-1]
    currency = balance.currency
    return Chart(
        id="pi-balance",
        title=_("%(currency)s: the balance over time") % {"currency": display.text(currency)},
        kind="steps",
        heading=_("At"),
        labels=tuple(display.moment(change.at) for change in changes),
        series=tuple(
            Series(
                label,
                tuple(getattr(change, name) for change in changes),
                tuple(format_money(getattr(change, name), currency) for change in changes),
                look,
            )
            for look, (name, label) in enumerate(_AMOUNTS.items())
        ),
        decimals=exponent(currency),
        unit=currency,
        moments=tuple(int(change.at.timestamp() * 1000) for change in changes),
    )
