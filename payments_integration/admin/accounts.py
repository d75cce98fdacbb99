"""What a merchant has at the provider: deposit references, balances, webhook endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from payments_integration.admin import columns, display, filters
from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin
from payments_integration.admin.sections import Page, Section
from payments_integration.enums import ActiveStatus, Country
from payments_integration.models import Balance, BalanceChange, DepositReference, WebhookEndpoint

if TYPE_CHECKING:
    _Inline = admin.TabularInline[Any, Any]
    _FormSet = BaseInlineFormSet[Any, Any, Any]
else:
    _Inline = admin.TabularInline
    _FormSet = BaseInlineFormSet

STATUS = filters.known("status", _("status"), ActiveStatus)
#: Changes of a balance shown on its page, newest first.
NEWEST = 50


@admin.register(DepositReference)
class DepositReferenceAdmin(MirrorAdmin):
    list_display = (
        "id", "status_shown", "method_code", "country_shown", "currency", "reference_shown", "account", "created_at",
    )  # fmt: skip
    list_filter = (STATUS, filters.COUNTRY, filters.CURRENCY, filters.ACCOUNT, "created_at")
    search_fields = ("id__startswith", "merchant_reference__exact")
    search_help_text = _("The beginning of an id, or a whole merchant reference")
    list_defer = ("details", "extra")
    fieldsets = (
        (None, {"fields": ("id", "status_shown", "reference_shown", "method_code", "country_shown", "currency")}),
        (_("What the payer is told"), {"fields": ("details_shown",)}),
        (_("Times"), {"fields": ("created_at",)}),
        MIRROR_FIELDS,
    )

    status_shown = columns.status(_("status"), ActiveStatus)
    reference_shown = columns.plain("merchant_reference", _("merchant reference"))
    country_shown = columns.choice("country", _("country"), Country)
    details_shown = columns.json("details", _("details"))


class _NewestChanges(_FormSet):
    def get_queryset(self) -> QuerySet[Any]:
        if not hasattr(self, "_newest"):
            self._newest = super().get_queryset()[:NEWEST]
        return self._newest


class BalanceChangeInline(_Inline):
    model = BalanceChange
    formset = _NewestChanges
    verbose_name_plural = _("latest changes")
    fields = ("at_shown", "available_shown", "pending_shown", "reserve_shown", "hold_shown", "debt_shown")
    readonly_fields = fields
    ordering = ("-at", "-pk")
    extra = 0
    can_delete = False

    at_shown = columns.at("at", _("at"))
    available_shown = columns.money("available", _("available"), currency="balance.currency")
    pending_shown = columns.money("pending", _("pending"), currency="balance.currency")
    reserve_shown = columns.money("reserve", _("reserve"), currency="balance.currency")
    hold_shown = columns.money("hold", _("hold"), currency="balance.currency")
    debt_shown = columns.money("debt", _("debt"), currency="balance.currency")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # Each amount is shown in the balance's currency.
        return super().get_queryset(request).select_related("balance")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Balance)
class BalanceAdmin(MirrorAdmin):
    list_display = (
        "currency", "available_shown", "pending_shown", "reserve_shown", "hold_shown", "debt_shown", "account",
        "updated_at",
    )  # fmt: skip
    list_filter = (filters.CURRENCY, filters.ACCOUNT)
    ordering = ("account", "currency")
    sortable_by = ()
    inlines = (BalanceChangeInline,)
    fieldsets = (
        (
            None,
            {"fields": ("currency", "available_shown", "pending_shown", "reserve_shown", "hold_shown", "debt_shown")},
        ),
        (_("Times"), {"fields": ("updated_at",)}),
        MIRROR_FIELDS,
    )

    available_shown = columns.money("available", _("available"))
    pending_shown = columns.money("pending", _("pending"))
    reserve_shown = columns.money("reserve", _("reserve"))
    hold_shown = columns.money("hold", _("hold"))
    debt_shown = columns.money("debt", _("debt"))


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(MirrorAdmin):
    """Endpoints and whether we hold their secret; the secret itself is nowhere to be seen."""

    list_display = ("id", "status_shown", "url", "secret_known", "secret_since", "account", "created_at")
    list_filter = (STATUS, filters.ACCOUNT)
    search_fields = ("id__startswith", "url__exact")
    search_help_text = _("The beginning of an id, or a whole URL")
    list_defer = ("extra", "events")
    fieldsets = (
        (None, {"fields": ("id", "status_shown", "url_link", "events_shown")}),
        (_("Secret"), {"fields": ("secret_known", "secret_since", "previous_secret_until")}),
        (_("Times"), {"fields": ("created_at", "deleted_at")}),
        MIRROR_FIELDS,
    )

    status_shown = columns.status(_("status"), ActiveStatus)
    url_link = columns.web_link("url", _("URL"))

    @admin.display(description=_("event types"))
    def events_shown(self, obj: WebhookEndpoint) -> str:
        return display.text(", ".join(map(str, obj.events or ())))

    @admin.display(description=_("secret known"), boolean=True)
    def secret_known(self, obj: WebhookEndpoint) -> bool:
        return bool(obj.secret_token)

    def sections(self, page: Page, obj: WebhookEndpoint) -> Iterable[Section]:
        yield from page.changes_of(obj)
        yield from page.operations(obj.account, obj.object_id)
