"""Show balances: the merchant's money at the provider, and how it changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, services
from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import Tool
from payments_integration.admin.shared.display import explain
from payments_integration.admin.shared.menu import Place
from payments_integration.admin.shared.sections import Page, Section, Table
from payments_integration.exceptions import PaymentsError
from payments_integration.models import Balance
from payments_integration.money import format_money

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

AMOUNTS: dict[str, StrOrPromise] = {
    "available": gettext_lazy("available"),
    "pending": gettext_lazy("pending"),
    "reserve": gettext_lazy("reserve"),
    "hold": gettext_lazy("hold"),
    "debt": gettext_lazy("debt"),
}
#: The meaning of each amount (spec, "Balance"). The spec does not say that they add up to anything.
_MEANINGS: dict[str, StrOrPromise] = {
    "available": gettext_lazy("can be paid out"),
    "pending": gettext_lazy("waits for settlement"),
    "reserve": gettext_lazy("held against chargebacks"),
    "hold": gettext_lazy("reserved for payouts and refunds in progress"),
    "debt": gettext_lazy("owed after chargebacks; blocks payouts and refunds while it is above zero"),
}


@admin.register(Balance)
class BalanceAdmin(MirrorAdmin):
    menu_place = Place.BALANCES
    list_display = (
        "currency", "available_shown", "pending_shown", "reserve_shown", "hold_shown", "debt_shown", "account",
        "updated_at",
    )  # fmt: skip
    list_filter = (filters.CURRENCY, filters.ACCOUNT)
    ordering = ("account", "currency")
    sortable_by = ()
    fieldsets = (
        (None, {"fields": ("currency", "updated_at")}),
        MIRROR_FIELDS,
    )

    available_shown = columns.money("available", AMOUNTS["available"])
    pending_shown = columns.money("pending", AMOUNTS["pending"])
    reserve_shown = columns.money("reserve", AMOUNTS["reserve"])
    hold_shown = columns.money("hold", AMOUNTS["hold"])
    debt_shown = columns.money("debt", AMOUNTS["debt"])

    def headline(self, page: Page, obj: Balance) -> Iterable[str]:
        yield display.text(obj.currency)
        yield format_html(_("{} available"), display.money(obj.available, obj.currency))
        if obj.debt > 0:
            words = _("payouts and refunds are blocked")
            yield format_html('<span class="pi-status pi-status-bad">{}</span>', words)

    def whose(self, page: Page, obj: Balance) -> Iterable[str]:
        yield format_money(obj.available, obj.currency)

    def lead(self, page: Page, obj: Balance) -> Iterable[Section]:
        rows: list[tuple[str, ...]] = [
            (capfirst(str(label)), display.money(getattr(obj, name), obj.currency), str(_MEANINGS[name]))
            for name, label in AMOUNTS.items()
        ]
        columns = (_("Amount"), _("Now"), _("What it is"))
        yield Table(_("The money at the provider"), columns, rows, "")

    def get_urls(self) -> list[URLPattern]:
        return [self.list_path("refresh-all", self.refresh_view), *super().get_urls()]

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        url = reverse(f"admin:{self.url_name('refresh-all')}", current_app=self.admin_site.name)
        yield Tool(gettext_lazy("Refresh"), url)

    def refresh_view(self, request: HttpRequest) -> HttpResponse:
        """Read the balances of every account. It changes nothing at the provider, so the view permission is enough."""
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
                words = _("The balances of the account %(account)s were refreshed.") % {
                    "account": conf.account_name(account)
                }
                self.message_user(request, words, messages.SUCCESS)
        return HttpResponseRedirect(display.list_url(self.admin_site, self.model))
