"""Show deposit references: what payers transfer to."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.base import MIRROR_FIELDS, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display
from payments_integration.enums import Country, DepositReferenceStatus
from payments_integration.models import DepositReference


@admin.register(DepositReference)
class DepositReferenceAdmin(MirrorAdmin):
    list_display = (
        "name_shown", "status_shown", "currency", "method_shown", "created_at", "account", "id",
    )  # fmt: skip
    list_filter = (
        filters.known("status", _("status"), DepositReferenceStatus),
        filters.COUNTRY,
        filters.CURRENCY,
        filters.ACCOUNT,
        "created_at",
    )
    search_fields = ("id__startswith", "merchant_reference__exact")
    search_help_text = _("The beginning of an id, or a whole merchant reference")
    list_defer = ("details", "extra")
    personal: tuple[str, ...] = ("details_shown", "extra_shown")
    fieldsets: ClassVar[Any] = (
        (None, {"fields": (
            "id", "status_shown", "merchant_reference", "details_shown", "method_code", "country_shown",
            "currency", "created_at",
        )}),
        MIRROR_FIELDS,
    )  # fmt: skip

    status_shown = columns.status(_("status"), DepositReferenceStatus)
    country_shown = columns.choice("country", _("country"), Country)
    method_shown = columns.method()
    details_shown = columns.fields("details", _("details"))

    @admin.display(description=_("merchant reference"))
    def name_shown(self, obj: DepositReference) -> str:
        # The link to the page needs a text.
        return display.text(obj.merchant_reference) if obj.merchant_reference else display.method_name(obj.method_code)
