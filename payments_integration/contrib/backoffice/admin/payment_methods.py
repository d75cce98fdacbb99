"""List the payment methods as the provider has them now. They are not stored."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.utils.translation import gettext_lazy as _

from payments_integration import conf, schemas, services
from payments_integration.admin.flows.forms import offer_accounts
from payments_integration.admin.shared import display
from payments_integration.admin.shared.display import explain, validation_messages
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.enums import Country, Currency
from payments_integration.exceptions import PaymentsError

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin

#: The maximum of methods shown.
MAX_ROWS = 500
#: The maximum of fields with a column of their own. The last column has the others.
MAX_COLUMNS = 10


class MethodsForm(TypedForm):
    country = forms.ChoiceField(label=_("Country"), required=False, choices=[("", _("all")), *Country.choices])
    currency = forms.ChoiceField(label=_("Currency"), required=False, choices=[("", _("all")), *Currency.choices])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["account"] = forms.ChoiceField(label=_("Account"))
        offer_accounts(self)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the service."""
        values = self.cleaned_data
        given = {name: values[name] for name in ("country", "currency") if values[name]}
        return {**given, "account": values.get("account") or (conf.aliases() or [conf.DEFAULT_ACCOUNT])[0]}


class PaymentMethodsPage:
    """GET: the form. POST: the form and the provider's list. It is a POST, so that no link can send a request."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        self.admin = model_admin
        self.request = request

    def respond(self) -> HttpResponse:
        if not self.admin.has_view_permission(self.request):
            raise PermissionDenied
        if self.request.method in ("GET", "HEAD"):
            return self._page(MethodsForm(), None)
        if self.request.method != "POST":
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        form = MethodsForm(self.request.POST)
        found = None
        if form.is_valid():
            try:
                found = services.list_payment_methods(**form.arguments)
            except ValidationError as error:
                for argument, message in validation_messages(error):
                    form.add_error(argument if argument in form.fields else None, message)
            except (PaymentsError, schemas.WireError, ImproperlyConfigured) as error:
                form.add_error(None, explain(self.admin.admin_site, error))
        return self._page(form, found)

    def _page(self, form: MethodsForm, found: list[schemas.PaymentMethod] | None) -> HttpResponse:
        names, title = _columns(found or ()), _("Payment methods")
        context = {
            "title": title,
            "form": form,
            "hidden": form.hidden_fields(),
            "listed": found is not None,
            "columns": names,
            "rows": [_cells(method, names) for method in (found or ())[:MAX_ROWS]],
            "left_out": max(0, len(found or ()) - MAX_ROWS),
        }
        crumbs = [(self.admin.visible_list_url(self.request), _("Payments")), ("", title)]
        return self.admin.render_page(self.request, "admin/payments_backoffice/payment_methods.html", context, crumbs)


def _columns(methods: Iterable[schemas.PaymentMethod]) -> list[str]:
    """Return the provider's field names, because the spec defines only the code."""
    return list(dict.fromkeys(name for method in methods for name in method.extra))[:MAX_COLUMNS]


def _cells(method: schemas.PaymentMethod, names: list[str]) -> list[str]:
    further = {name: value for name, value in method.extra.items() if name not in names}
    cells = [_cell(method.extra.get(name)) for name in names]
    return [display.text(method.code), *cells, *([_cell(further)] if further else [])]


def _cell(value: Any) -> str:
    """Return a value as the provider sent it. The spec does not say which numbers are amounts, or in which units."""
    if value is None or isinstance(value, str):
        return display.text(value)
    return display.text(json.dumps(value, ensure_ascii=False))
