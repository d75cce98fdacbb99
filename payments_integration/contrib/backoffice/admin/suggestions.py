"""Suggest the recipients, banks and payment methods of earlier payouts on the pages that send money.

The provider lists neither recipients nor banks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlencode

from django import forms
from django.utils.functional import cached_property

from payments_integration import conf
from payments_integration.admin.flows.forms import KeyedForm
from payments_integration.admin.flows.payout import PayoutForm, PayoutPage
from payments_integration.admin.flows.refund import RefundForm, RefundPage
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import may_view
from payments_integration.enums import PayoutStatus
from payments_integration.models import Payout

#: The maximum of suggested recipients.
_RECIPIENTS = 8
#: The parameter with the id of a payout whose recipient is filled in. Addresses are logged, so it contains no personal
#: data.
RECIPIENT = "recipient"
#: In these statuses, the money is back in the balance, as far as the provider says.
MONEY_IS_BACK = (PayoutStatus.FAILED, PayoutStatus.RETURNED)
#: The number of newest payouts that are read to suggest recipients, banks and methods.
SUGGEST_FROM = 200
#: Maps each field that has suggestions to the id of its list.
_LISTS = {"method_code": "pi-method-codes", "bank_code": "pi-banks"}

F = TypeVar("F", bound=forms.Form)


@dataclass(frozen=True, slots=True)
class Known:
    """A value that a field suggests. Users can also type any other value."""

    value: str
    name: str
    #: Country codes with blanks between them. A page may hide values of other countries.
    countries: str


def suggesting(form: F) -> F:
    """Return the form whose fields show the lists of suggestions."""
    for name, list_id in _LISTS.items():
        if name in form.fields:
            form.fields[name].widget.attrs["list"] = list_id
    return form


def known_banks(payouts: Iterable[Payout]) -> list[Known]:
    """Return the banks that money went to, for users who may see bank accounts. The provider does not list banks."""
    found: dict[str, set[str]] = {}
    for payout in payouts:
        code = _bank_account(payout.destination).get("bank_code")
        if code and not payout.erased_at:
            found.setdefault(display.text(code), set()).add(payout.country)
    return [Known(code, "", " ".join(sorted(countries))) for code, countries in sorted(found.items())]


class SuggestingPayoutPage(PayoutPage):
    """The page that creates a payout, with recipients, banks and methods used before."""

    template = "admin/payments_backoffice/payout.html"

    def form(self, *args: Any, **kwargs: Any) -> PayoutForm:
        return suggesting(super().form(*args, **kwargs))

    def initial(self) -> dict[str, Any]:
        chosen = self.seen(self.request.GET.get(RECIPIENT))
        return {} if chosen is None else self.recipient(chosen)

    def seen(self, pk: str | None) -> Payout | None:
        """Return the payout with this id, if the user may see it."""
        row = self.admin.get_queryset(self.request).filter(pk=pk).first() if pk and "\x00" not in pk else None
        return row if row is not None and self.admin.has_view_permission(self.request, row) else None

    def recipient(self, row: Payout) -> dict[str, Any]:
        """Return the recipient of a payout as form values. Only users who may see the bank account get it."""
        sees = self.admin.sees_personal(self.request)
        account = _bank_account(row.destination) if sees else {}
        names = ("account", "country", "currency", "method_code")
        return {**{name: getattr(row, name) for name in names}, **account}

    @property
    def sees_recipients(self) -> bool:
        """True if the user may see whom money went to."""
        return self.admin.has_view_permission(self.request) and self.admin.sees_personal(self.request)

    @cached_property
    def newest(self) -> list[Payout]:
        """The newest payouts, as far as the user may see them."""
        rows = self.admin.get_queryset(self.request).order_by("-created_at", "-pk")
        rows = rows.defer("metadata", "extra") if self.sees_recipients else rows.only("method_code", "country")
        return list(rows[:SUGGEST_FROM])

    def context(self, form: KeyedForm) -> dict[str, Any]:
        # Show recipients only on an empty form, because choosing one reloads the page.
        offers = self.sees_recipients and self.request.method != "POST"
        return {
            **super().context(form),
            "methods": [
                Known(code, display.method_name(code), country)
                for code, country in sorted({(row.method_code, row.country) for row in self.newest})
            ],
            "banks": known_banks(self.newest) if self.sees_recipients else [],
            "recipients": list(islice(self._recipients(), _RECIPIENTS)) if offers else [],
        }

    def _recipients(self) -> Iterator[tuple[str, str]]:
        """Yield (name, URL) of the bank accounts that money last went to, unless their last payout came back."""
        known = set()
        for row in self.newest:
            account = _bank_account(row.destination)
            where = (row.account, row.currency, row.country, account.get("bank_code"), account.get("account_number"))
            if row.erased_at or row.refund_id or where in known or row.account not in conf.aliases():
                continue
            if "account_number" not in account or "holder_name" not in account:
                continue
            known.add(where)
            if row.status in MONEY_IS_BACK:
                continue
            words = (account["holder_name"], account.get("bank_code"), account["account_number"], row.currency)
            yield " · ".join(display.text(word) for word in words if word), f"?{urlencode({RECIPIENT: row.pk})}"


class SuggestingRefundPage(RefundPage):
    """The page that refunds a payment, with banks used before in its country."""

    template = "admin/payments_backoffice/refund.html"

    def form(self, *args: Any, **kwargs: Any) -> RefundForm:
        return suggesting(super().form(*args, **kwargs))

    def context(self, form: KeyedForm) -> dict[str, Any]:
        return {**super().context(form), "banks": [] if self.by_card else self._banks()}

    def _banks(self) -> list[Known]:
        if not self.admin.sees_personal(self.request) or not may_view(self.admin.admin_site, self.request, Payout):
            return []
        rows = self.admin.admin_site.get_model_admin(Payout).get_queryset(self.request).order_by("-created_at", "-pk")
        newest = rows.only("destination", "country", "erased_at")[:SUGGEST_FROM]
        return [bank for bank in known_banks(newest) if self.payment.country in bank.countries]


def _bank_account(destination: Any) -> dict[str, str]:
    """Return the values of the form's fields for a stored bank account; none for any other destination."""
    if not isinstance(destination, dict) or destination.get("type") != "bank_account":
        return {}
    document = destination.get("holder_document")
    document = document if isinstance(document, dict) else {}
    names = ("holder_name", "bank_code", "account_number", "account_type")
    found = {
        **{name: destination.get(name) for name in names},
        "document_type": document.get("type"),
        "document_number": document.get("number"),
    }
    return {name: value for name, value in found.items() if isinstance(value, str) and value}
