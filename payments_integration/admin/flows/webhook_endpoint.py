"""Provide the page that creates a webhook endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, services, site_urls
from payments_integration.admin.flows.confirmation import KeyedPage
from payments_integration.admin.flows.forms import KeyedForm
from payments_integration.admin.shared.buttons import Outcome
from payments_integration.admin.shared.display import NO_SECRET
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import Operation, WebhookEndpoint
from payments_integration.validation.text import StrOrPromise
from payments_integration.validation.urls import LOOPBACK_HOSTS

if TYPE_CHECKING:
    from payments_integration.admin.base import MirrorAdmin


def public_url(request: HttpRequest, account: str) -> str:
    """Return the URL of an account's webhook view on the host of this request; empty if no URL is configured.

    The URL is always HTTPS, because the provider requires it and a proxy may not forward the scheme. On localhost, the
    scheme is unchanged.
    """
    place = site_urls.webhook_path(account)
    if not place:
        return ""
    parts = urlsplit(request.build_absolute_uri(place))
    scheme = parts.scheme if parts.hostname in LOOPBACK_HOSTS else "https"
    return parts._replace(scheme=scheme).geturl()


class WebhookEndpointForm(KeyedForm):
    """The URL and the event types. The service validates the URL."""

    account = forms.ChoiceField(label=gettext_lazy("Account"))
    url = forms.CharField(
        label=gettext_lazy("URL"), max_length=2048, widget=forms.URLInput(attrs={"class": "vURLField"})
    )
    events = forms.MultipleChoiceField(
        label=gettext_lazy("Event types"),
        choices=[(name, name) for name in EVENT_TYPES],
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Keep them all selected. Events of other types are found later, by reconciliation."),
    )

    def __init__(self, own: dict[str, str], *args: Any, **kwargs: Any) -> None:
        """Take the URL of each account's webhook view as ``own``."""
        super().__init__(*args, **kwargs)
        self._own = own
        account = cast("forms.ChoiceField", self.fields["account"])
        account.choices = [(alias, conf.account_name(alias)) for alias in own]
        if len(own) == 1:
            account.widget = forms.HiddenInput()
        else:
            listed = ", ".join(f"{conf.account_name(alias)}: {url}" for alias, url in own.items() if url)
            self.fields["url"].help_text = _("Each account has its own URL: %(urls)s") % {"urls": listed}

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for alias, url in self._own.items():
            if url and url == values.get("url") and alias != values.get("account"):
                words = _("This is the URL of the account %(account)s.") % {"account": conf.account_name(alias)}
                self.add_error("url", words)
        return values


class WebhookEndpointPage(KeyedPage):
    """One request of the page that creates an endpoint. The view has checked the permission."""

    template = "admin/payments_integration/webhookendpoint/add.html"
    title = gettext_lazy("Create webhook endpoint")
    groups = ((None, ("account", "url", "events")),)

    def __init__(self, model_admin: MirrorAdmin, request: HttpRequest) -> None:
        self.admin = model_admin
        self.request = request
        self._own = {alias: public_url(request, alias) for alias in conf.aliases()}

    def form(self, *args: Any, **kwargs: Any) -> WebhookEndpointForm:
        return WebhookEndpointForm(self._own, *args, **kwargs)

    def initial(self) -> dict[str, Any]:
        asked = self.request.GET.get("account", "")
        account = asked if asked in self._own else next(iter(self._own), "")
        return {"account": account, "url": self._own.get(account, ""), "events": list(EVENT_TYPES)}

    def account(self, form: Any) -> str:
        return str(form.cleaned_data["account"])

    def call(self, form: WebhookEndpointForm) -> WebhookEndpoint:
        return services.create_webhook_endpoint(**form.cleaned_data, actor=self.request.user)

    def done(self, row: WebhookEndpoint) -> tuple[WebhookEndpoint, str, Outcome]:
        words = _("Created at the provider.")
        entry = f"{words} ({row.pk})"
        if not row.secret_token:
            return row, entry, Outcome(_("The endpoint was created. %s") % NO_SECRET, messages.WARNING)
        words = _("The endpoint was created. Its secret is stored encrypted and used from now on. It is never shown.")
        return row, entry, Outcome(words)

    def recorded(self, operation: Operation) -> tuple[Operation, str]:
        words = _("Webhook endpoint asked for.")
        return operation, f"{words} ({operation.pk})"

    def back(self, row: WebhookEndpoint | None = None) -> HttpResponse:
        return self.admin.to_list(self.request) if row is None else self.admin.back(self.request, row)

    def crumbs(self) -> list[tuple[str, StrOrPromise]]:
        name = capfirst(str(self.admin.opts.verbose_name_plural))
        return [(self.admin.visible_list_url(self.request), name), ("", _("Create"))]
