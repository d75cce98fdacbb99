"""Search payments, payouts, refunds, deposit references and operations at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.admin.lists import filters
from payments_integration.admin.lists.changelist import TOO_MANY
from payments_integration.admin.shared import display, people
from payments_integration.admin.shared.buttons import hidden, may, may_view
from payments_integration.admin.shared.sections import Page, Table
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.contrib.backoffice import search
from payments_integration.contrib.backoffice.admin.sections.people import payment_of
from payments_integration.contrib.backoffice.terms import MAX_SEARCH
from payments_integration.enums import ID_PREFIXES
from payments_integration.models import DepositReference, Operation, OperationState, Payment, Payout, Refund
from payments_integration.money import format_money
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin

#: The models that are searched, in the order of the page.
MODELS: tuple[type[Any], ...] = (Payment, Payout, Refund, DepositReference, Operation)
#: The number of rows per table, newest first. The admin's list has the others.
ROWS = 10
_OPERATION_PREFIX = "op_"

Columns = dict[StrOrPromise, Callable[[Any], str]]


class SearchForm(TypedForm):
    q = forms.CharField(
        label=_("Search"),
        max_length=MAX_SEARCH,
        required=False,
        widget=forms.TextInput(attrs={"type": "search", "id": "pi-search"}),
    )


def url(site: AdminSite, request: HttpRequest) -> str:
    """Return the URL of the page, or "" if the user may see none of the models."""
    return display.page_url(site, Payment, "search") if any(_visible(site, request)) else ""


class SearchPage:
    """One request of the page. It has a table for each kind of row that the user may see and that has matches."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        self.admin = model_admin
        self.site = model_admin.admin_site
        self.request = request
        self.is_cut = False

    def respond(self) -> HttpResponse:
        models = list(_visible(self.site, self.request))
        if not models:
            raise PermissionDenied
        if self.request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        form = SearchForm(self.request.GET, label_suffix="")
        text = form.cleaned_data["q"].strip() if form.is_valid() else ""
        context = {
            "title": _("Search"),
            "form": form,
            "searched": text,
            "tables": list(self._tables(models, text)) if text else [],
            "kinds": [model._meta.verbose_name_plural for model in models],
            "sees_personal": may(self.request, "view_personal_data"),
            "example": search.example(),
            "hidden": hidden(self.site, self.request, *MODELS),
        }
        context["too_many"] = TOO_MANY if self.is_cut else ""
        crumbs = [("", str(_("Search")))]
        return self.admin.render_page(self.request, "admin/payments_backoffice/search.html", context, crumbs)

    def _tables(self, models: list[type[Any]], text: str) -> Iterable[Table]:
        kinds = [model.kind for model in models if model is not Operation]
        found = (
            search.find(text, kinds, personal=may(self.request, "view_personal_data")) if kinds else search.Matches()
        )
        self.is_cut |= found.is_cut
        if Refund in models:
            of_payments, is_cut = search.refunds_of(text, personal=may(self.request, "view_personal_data"))
            found.ids.setdefault(Refund.kind, []).extend(of_payments)
            self.is_cut |= is_cut
        for model in models:
            rows = self._rows(model, text, found.ids.get(getattr(model, "kind", ""), []))
            if rows:
                yield self._table(model, rows, text)

    def _rows(self, model: type[Any], text: str, ids: list[str]) -> list[Any]:
        """Return the rows of a model that match, newest first.

        Takes one statement, and another if the text looks like an id. Python sorts the rows, because a database that
        sorts them could read the whole table in this order.
        """
        model_admin: Any = self.site.get_model_admin(model)
        lookups: list[filters.Lookup] = model_admin.get_lookups(self.request, text)
        rows = model_admin.get_queryset(self.request).order_by().defer(*model_admin.list_defer)
        # A project may set True, for every relation. Of one page's rows they may be read one by one.
        if (related := model_admin.list_select_related) and related is not True:
            rows = rows.select_related(*related)
        exact = [lookup.rows for lookup in lookups if not lookup.is_prefix]
        found: list[Any] = list(rows.filter(reduce(or_, exact, Q(pk__in=ids)))[: filters.MAX_IDS + 1])
        self.is_cut |= len(found) > filters.MAX_IDS
        if text.startswith(ID_PREFIXES.get(getattr(model, "kind", ""), _OPERATION_PREFIX)):
            for lookup in lookups:
                if lookup.is_prefix:
                    begun = list(rows.filter(lookup.rows).order_by("pk")[: filters.MAX_IDS + 1])
                    self.is_cut |= len(begun) > filters.MAX_IDS
                    found += begun
        newest = sorted(found, key=lambda row: (row.created_at, row.pk), reverse=True)
        return list(dict.fromkeys(newest))

    def _table(self, model: type[Any], rows: list[Any], text: str) -> Table:
        columns = self._columns(model)
        more = f"{display.list_url(self.site, model)}?{urlencode({'q': text})}" if len(rows) > ROWS else ""
        cells = [tuple(cell(row) for cell in columns.values()) for row in rows[:ROWS]]
        return Table(capfirst(str(model._meta.verbose_name_plural)), tuple(columns), cells, more)

    def _columns(self, model: type[Any]) -> Columns:
        """Return the columns in the order of the lists: the amount as a link, status, who, what, how, and the id."""

        def linked(shown: Callable[[Any], object]) -> Callable[[Any], str]:
            return lambda row: display.admin_link(self.site, model, row.pk, shown(row))

        money: Columns = {_("Amount"): linked(lambda row: format_money(row.amount, row.currency))}
        reference: Columns = {_("Merchant reference"): lambda row: display.text(row.merchant_reference)}
        last: Columns = {
            _("Created at"): lambda row: display.short(row.created_at),
            **(
                {_("Account"): lambda row: display.text(conf.account_name(row.account))}
                if len(conf.aliases()) > 1
                else {}
            ),
            _("Id"): lambda row: display.copied(row.pk),
        }
        if model is Operation:
            amount: Columns = {_("Amount"): lambda row: display.money(row.amount, row.currency)}
            state: Columns = {
                _("Operation"): linked(lambda row: display.operation_name(row.operation)),
                _("State"): lambda row: display.status(row.state, OperationState),
            }
            return {**state, **amount, **reference, **last}
        status: Columns = {_("Status"): lambda row: display.status(row.status, model.Status)}
        page = Page(display.seen(self.site, self.request), self.request)
        if model is Refund:
            of: Columns = {
                _("Payer"): lambda row: (
                    (people.name(page, payment, "payer") if (payment := payment_of(page, row)) else "")
                    or display.EMPTY
                ),
                _("Payment"): lambda row: display.admin_link(page.site, Payment, row.payment_id),
            }
            return {**money, **status, **of, **last}
        how: Columns = {_("Method"): lambda row: display.method_name(row.method_code)}
        if model is DepositReference:
            name: Columns = {
                _("Merchant reference"): linked(
                    lambda row: row.merchant_reference or display.method_name(row.method_code)
                )
            }
            return {**name, **status, _("Currency"): lambda row: display.text(row.currency), **how, **last}
        label, field = (_("Recipient"), "destination") if model is Payout else (_("Payer"), "payer")
        who: Columns = {label: lambda row: people.name(page, row, field) or display.EMPTY}
        # The column of the list also says what was refunded, or why it failed.
        model_admin: Any = self.site.get_model_admin(model)
        status = {_("Status"): model_admin.masking(self.request, partial(getattr, model_admin))("state_shown")}
        return {**money, **status, **who, **reference, **how, **last}


def _visible(site: AdminSite, request: HttpRequest) -> Iterable[type[Model]]:
    return (model for model in MODELS if may_view(site, request, model))
