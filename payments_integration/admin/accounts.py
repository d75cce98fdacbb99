"""What a merchant has at the provider: deposit references."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from payments_integration.admin import columns, deposits, filters, next_action
from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin
from payments_integration.admin.sections import Page, Section
from payments_integration.enums import ActiveStatus, Country
from payments_integration.models import DepositReference

STATUS = filters.known("status", _("status"), ActiveStatus)


@admin.register(DepositReference)
class DepositReferenceAdmin(MirrorAdmin):
    list_display = (
        "id", "status_shown", "method_code", "country_shown", "currency", "reference_shown", "account", "created_at",
    )  # fmt: skip
    list_filter = (STATUS, filters.COUNTRY, filters.CURRENCY, filters.ACCOUNT, filters.days("created_at"))
    search_fields = ("id__startswith", "merchant_reference__exact")
    search_help_text = _("The beginning of an id, or a whole merchant reference")
    list_defer = ("details", "extra")
    personal = ("details_shown", "extra_shown")
    export = (
        "id", "status", "country", "currency", "method_code", "merchant_reference", "account", "created_at",
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": ("id", "status_shown", "reference_shown", "method_code", "country_shown", "currency")}),
        (_("What the payer is told"), {"fields": ("details_shown",)}),
        (_("Times"), {"fields": ("created_at",)}),
        MIRROR_FIELDS,
    )

    status_shown = columns.status(_("status"), ActiveStatus)
    reference_shown = columns.plain("merchant_reference", _("merchant reference"))
    country_shown = columns.choice("country", _("country"), Country)
    details_shown = next_action.column("details", _("details"))

    def sections(self, page: Page, obj: DepositReference) -> Iterable[Section]:
        yield from deposits.payments_through(page, obj)
        yield from page.history(obj)
