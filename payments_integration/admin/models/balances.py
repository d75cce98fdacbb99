"""Show balances: the merchant's money at the provider, and how it changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, services
from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns
from payments_integration.admin.shared.buttons import NOTHING_DONE, Tool
from payments_integration.admin.shared.display import explain
from payments_integration.exceptions import PaymentsError
from payments_integration.models import Balance
from payments_integration.validation.text import StrOrPromise

AMOUNTS: dict[str, StrOrPromise] = {
    "available": gettext_lazy("available"),
    "pending": gettext_lazy("pending"),
    "reserve": gettext_lazy("reserve"),
    "hold": gettext_lazy("hold"),
    "debt": gettext_lazy("debt"),
}


@admin.register(Balance)
class BalanceAdmin(MirrorAdmin):
    list_display = (
        "currency", "available_shown", "pending_shown", "reserve_shown", "hold_shown", "debt_shown", "account",
        "updated_at",
    )  # fmt: skip
    list_filter = (filters.CURRENCY, filters.ACCOUNT)
    ordering = ("account", "currency")
    sortable_by = ()
    fieldsets: ClassVar[Any] = (
        (None, {"fields": (
            "currency", "available_shown", "pending_shown", "reserve_shown", "hold_shown", "debt_shown",
            "updated_at",
        )}),
        MIRROR_FIELDS,
    )  # fmt: skip

    available_shown = columns.money("available", AMOUNTS["available"])
    pending_shown = columns.money("pending", AMOUNTS["pending"])
    reserve_shown = columns.money("reserve", AMOUNTS["reserve"])
    hold_shown = columns.money("hold", AMOUNTS["hold"])
    debt_shown = columns.money("debt", AMOUNTS["debt"])

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
            self.message_user(request, NOTHING_DONE, messages.WARNING)
            return self.to_list(request)
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
        return self.to_list(request)
