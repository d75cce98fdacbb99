"""Provide the page that creates a webhook endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.contrib.admin import helpers
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import NoReverseMatch, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, services
from payments_integration.admin.flows.confirmation import was_sent_for_another
from payments_integration.admin.flows.forms import KeyedForm
from payments_integration.admin.shared.buttons import new_key
from payments_integration.admin.shared.display import NO_SECRET, SENT_BEFORE, explain, validation_messages
from payments_integration.enums import EVENT_TYPES
from payments_integration.exceptions import ApprovalRequired, IdempotencyMismatch, OutcomeUnknown, PaymentsError
from payments_integration.validation.urls import LOOPBACK_HOSTS

if TYPE_CHECKING:
    from payments_integration.admin.base import MirrorAdmin


def public_url(request: HttpRequest, account: str) -> str:
    """Return the URL of an account's webhook view on the host of this request; empty if no URL is configured.

    The URL is always HTTPS, because the provider requires it and a proxy may not forward the scheme. On localhost, the
    scheme is unchanged.
    """
    try:
        if account == conf.DEFAULT_ACCOUNT:
            place = reverse("payments_integration:webhook")
        else:
            place = reverse("payments_integration:webhook-account", args=(account,))
    except NoReverseMatch:
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


class WebhookEndpointPage:
    """One request of the page that creates an endpoint. The view has checked the permission."""

    def __init__(self, model_admin: MirrorAdmin, request: HttpRequest) -> None:
        self.admin = model_admin
        self.request = request
        self._own = {alias: public_url(request, alias) for alias in conf.aliases()}

    def respond(self) -> HttpResponse:
        if self.request.method == "GET":
            asked = self.request.GET.get("account", "")
            account = asked if asked in self._own else next(iter(self._own), "")
            initial = {
                "account": account,
                "url": self._own.get(account, ""),
                "events": list(EVENT_TYPES),
                "idempotency_key": new_key(),
            }
            return self._page(WebhookEndpointForm(self._own, initial=initial))
        if self.request.method != "POST":
            return HttpResponseNotAllowed(["GET", "POST"])
        form = WebhookEndpointForm(self._own, self.request.POST)
        return self._create(form) if form.is_valid() else self._page(form)

    def _create(self, form: WebhookEndpointForm) -> HttpResponse:
        values = form.cleaned_data
        site = self.admin.admin_site
        if was_sent_for_another(values["idempotency_key"], values["account"]):
            return self._leave(messages.WARNING, str(SENT_BEFORE))
        repeated = self.admin.was_sent(values["idempotency_key"])
        try:
            endpoint = services.create_webhook_endpoint(
                url=values["url"],
                events=values["events"],
                account=values["account"],
                idempotency_key=values["idempotency_key"],
                actor=self.request.user,
            )
        except ValidationError as error:
            for argument, message in validation_messages(error):
                form.add_error(argument if argument in form.fields else None, message)
            return self._page(form)
        except (OutcomeUnknown, ApprovalRequired) as error:
            # Leave the form, because it must not be sent again.
            words = _("Webhook endpoint asked for.")
            self.admin.log_once(self.request, error.operation, words, about=words, repeated=repeated)
            return self._leave(messages.WARNING, explain(site, error))
        except IdempotencyMismatch as error:
            return self._leave(messages.WARNING, explain(site, error))
        except (PaymentsError, ImproperlyConfigured) as error:
            form.add_error(None, explain(site, error))
            # This key keeps the refusal forever, so another attempt needs a new key.
            typed = self.request.POST.copy()
            typed["idempotency_key"] = new_key()
            form.data = typed
            return self._page(form)
        words = _("Created at the provider.")
        self.admin.log_once(self.request, endpoint, words, about=words, repeated=repeated, is_new=True)
        if endpoint.secret_token:
            words = _(
                "The endpoint was created. Its secret is stored encrypted and used from now on. It is never shown."
            )
            self.admin.message_user(self.request, words, messages.SUCCESS)
        else:
            self.admin.message_user(self.request, _("The endpoint was created. %s") % NO_SECRET, messages.WARNING)
        return self.admin.back(self.request, endpoint)

    def _leave(self, level: int, message: str) -> HttpResponse:
        self.admin.message_user(self.request, message, level)
        return self.admin.to_list(self.request)

    def _page(self, form: WebhookEndpointForm) -> HttpResponse:
        shown = [name for name in form.fields if not form[name].is_hidden]
        name = capfirst(str(self.admin.opts.verbose_name_plural))
        context = {
            "title": _("Create webhook endpoint"),
            "form": form,
            "hidden": [field for field in form if field.is_hidden],
            "adminform": helpers.AdminForm(
                cast("Any", form), [(None, {"fields": shown})], {}, (), model_admin=self.admin
            ),
            "media": self.admin.media + form.media,
        }
        template = "admin/payments_integration/webhookendpoint/add.html"
        crumbs = [(self.admin.visible_list_url(self.request), name), ("", _("Create"))]
        return self.admin.render_page(self.request, template, context, crumbs)
