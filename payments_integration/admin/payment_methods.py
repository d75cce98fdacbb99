"""The payment methods as the provider lists them now. Nothing of it is kept here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from payments_integration import conf, services, wire
from payments_integration.admin import display, outcomes
from payments_integration.enums import Country, Currency
from payments_integration.exceptions import PaymentsError

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin

#: More would be no list that a person reads.
MAX_ROWS = 500
#: Fields shown beside the code; what else there is stands in the last column.
MAX_COLUMNS = 10


class MethodsForm(forms.Form):
    country = forms.ChoiceField(label=_("Country"), required=False, choices=[("", _("all")), *Country.choices])
    currency = forms.ChoiceField(label=_("Currency"), required=False, choices=[("", _("all")), *Currency.choices])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        aliases = conf.aliases()
        if len(aliases) > 1:
            choices = [(alias, alias) for alias in aliases]
            self.fields["account"] = forms.ChoiceField(label=_("Account"), choices=choices)

    @property
    def asked(self) -> dict[str, Any]:
        values = self.cleaned_data
        given = {name: values[name] for name in ("country", "currency") if values[name]}
        return {**given, "account": values.get("account") or (conf.aliases() or [conf.DEFAULT_ACCOUNT])[0]}


def respond(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """The form; sent, also what the provider lists. It is a read, and a POST: no link makes a request leave."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    if request.method in ("GET", "HEAD"):
        return _page(model_admin, request, MethodsForm(), None)
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    form = MethodsForm(request.POST)
    found = None
    if form.is_valid():
        try:
            found = services.list_payment_methods(**form.asked)
        except ValidationError as error:
            for argument, message in outcomes.complaints(error):
                form.add_error(argument if argument in form.fields else None, message)
        except wire.WireError as error:
            words = _("What the provider answered cannot be taken in: %(error)s") % {"error": display.text(error)}
            form.add_error(None, words)
        except (PaymentsError, ImproperlyConfigured) as error:
            form.add_error(None, outcomes.explain(model_admin.admin_site, error))
    return _page(model_admin, request, form, found)


def _page(
    model_admin: ReadOnlyAdmin, request: HttpRequest, form: MethodsForm, found: list[wire.PaymentMethod] | None
) -> HttpResponse:
    site = model_admin.admin_site
    request.current_app = site.name
    names = _columns(found or ())
    context = {
        **site.each_context(request),
        "title": _("Payment methods"),
        "opts": model_admin.opts,
        "list_url": reverse(f"admin:{model_admin.url_name('changelist')}", current_app=site.name),
        "form": form,
        "listed": found is not None,
        "columns": names,
        "rows": [_cells(method, names) for method in (found or ())[:MAX_ROWS]],
        "left_out": max(0, len(found or ()) - MAX_ROWS),
        "media": model_admin.media + form.media,
    }
    return TemplateResponse(request, "admin/payments_integration/payment/methods.html", context)


def _columns(methods: Iterable[wire.PaymentMethod]) -> list[str]:
    """The provider's own field names, as they come: the spec names none but the code."""
    return list(dict.fromkeys(name for method in methods for name in method.extra))[:MAX_COLUMNS]


def _cells(method: wire.PaymentMethod, names: list[str]) -> list[str]:
    further = {name: value for name, value in method.extra.items() if name not in names}
    cells = [_cell(method.extra.get(name)) for name in names]
    return [display.text(method.code), *cells, *([_cell(further)] if further else [])]


def _cell(value: Any) -> str:
    """As it came: whether a number is an amount, and in which units, nobody says."""
    if value is None or isinstance(value, str):
        return display.text(value)
    return display.text(json.dumps(value, ensure_ascii=False))
