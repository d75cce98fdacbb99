"""Balances: what the merchant has at the provider, and how it came to be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration import conf, services
from payments_integration.admin import columns, display, filters, on_demand, outcomes
from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin, outside_transactions
from payments_integration.admin.buttons import Tool
from payments_integration.admin.panels import SCRIPTS, STYLES, Section
from payments_integration.admin.sections import Page
from payments_integration.exceptions import PaymentsError
from payments_integration.models import Balance, BalanceChange
from payments_integration.money import exponent, format_money

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    from payments_integration.admin.charts import Chart

#: Changes of a balance shown on its page.
NEWEST = 200
_AMOUNTS: dict[str, StrOrPromise] = {
    "available": gettext_lazy("available"),
    "pending": gettext_lazy("pending"),
    "reserve": gettext_lazy("reserve"),
    "hold": gettext_lazy("hold"),
    "debt": gettext_lazy("debt"),
}


@dataclass(frozen=True, slots=True)
class History(Section):
    """The newest changes, drawn and in a table."""

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
        yield History(history(obj))
        yield from super().sections(page, obj)

    def get_urls(self) -> list[URLPattern]:
        def anew(request: HttpRequest) -> HttpResponse:
            return self.read_anew(request)

        view: Any = self.admin_site.admin_view(outside_transactions(anew))
        return [path("read-anew/", view, name=self.url_name("read-anew")), *super().get_urls()]

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        url = reverse(f"admin:{self.url_name('read-anew')}", current_app=self.admin_site.name)
        yield Tool(gettext_lazy("Read anew"), url)

    def read_anew(self, request: HttpRequest) -> HttpResponse:
        """GET every account's balances. Whoever may see them may have them read: it changes nothing there."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        for account in conf.aliases():
            try:
                services.sync_balances(account=account)
            except (PaymentsError, ImproperlyConfigured) as error:
                words = outcomes.explain(self.admin_site, error)
                self.message_user(request, f"{account}: {words}", messages.ERROR)
            else:
                words = _("The balances of the account %(account)s were read anew.") % {"account": account}
                self.message_user(request, words, messages.SUCCESS)
        return HttpResponseRedirect(display.list_url(self.admin_site, self.model))


def history(balance: Balance) -> Chart:
    """Each amount over time; the newest changes, oldest first."""
    newest = BalanceChange.objects.filter(balance=balance).order_by("-at", "-pk")[:NEWEST]
    changes = list(newest)[::-1]
    currency = balance.currency
    return on_demand.charts.Chart(
        id="pi-balance",
        title=_("%(currency)s: the balance over time") % {"currency": display.text(currency)},
        kind="steps",
        heading=_("At"),
        labels=tuple(display.moment(change.at) for change in changes),
        series=tuple(
            on_demand.charts.Series(
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
