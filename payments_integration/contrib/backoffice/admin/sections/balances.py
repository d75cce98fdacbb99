"""Show a balance: its amounts with what they mean."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.admin.base import MIRROR_FIELDS
from payments_integration.admin.models import balances
from payments_integration.admin.models.balances import AMOUNTS
from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Page, Section, Table
from payments_integration.contrib.backoffice.admin.sections.base import SectionsAdmin
from payments_integration.models import Balance
from payments_integration.money import format_money
from payments_integration.validation.text import StrOrPromise

#: The meaning of each amount (spec, "Balance"). The spec does not say that they add up to anything.
_MEANINGS: dict[str, StrOrPromise] = {
    "available": gettext_lazy("can be paid out"),
    "pending": gettext_lazy("waits for settlement"),
    "reserve": gettext_lazy("held against chargebacks"),
    "hold": gettext_lazy("reserved for payouts and refunds in progress"),
    "debt": gettext_lazy("owed after chargebacks; blocks payouts and refunds while it is above zero"),
}


class BalanceSectionsAdmin(SectionsAdmin, balances.BalanceAdmin):
    fieldsets = (
        (None, {"fields": ("currency", "updated_at")}),
        MIRROR_FIELDS,
    )

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
