"""Webhook endpoints: creating, rotating and deleting them. Their secrets are nowhere to be seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration import conf, services
from payments_integration.admin import columns, display, filters, outcomes
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH, MirrorAdmin, outside_transactions
from payments_integration.admin.buttons import Button, Outcome, may, new_key
from payments_integration.admin.charts import STYLES
from payments_integration.admin.confirming import first_crumbs, was_sent_for_another
from payments_integration.admin.panels import Section
from payments_integration.admin.sections import Page
from payments_integration.admin.spans import since
from payments_integration.enums import EVENT_TYPES, ActiveStatus
from payments_integration.exceptions import ApprovalRequired, IdempotencyMismatch, OutcomeUnknown, PaymentsError
from payments_integration.models import WebhookEndpoint


def public_url(request: HttpRequest, account: str) -> str:
    """The address of an account's webhook view as this request sees the site; empty where no URL leads to it.

    HTTPS, which the provider asks for, but on this machine: a proxy may not have said that it is.
    """
    try:
        if account == conf.DEFAULT_ACCOUNT:
            place = reverse("payments_integration:webhook")
        else:
            place = reverse("payments_integration:webhook-account", args=(account,))
    except NoReverseMatch:
        return ""
    parts = urlsplit(request.build_absolute_uri(place))
    scheme = parts.scheme if parts.hostname in conf.LOOPBACK_HOSTS else "https"
    return parts._replace(scheme=scheme).geturl()


class EndpointForm(forms.Form):
    """What to create. Its checks are about typing; what an address must be, the service decides."""

    account = forms.ChoiceField(label=gettext_lazy("Account"))
    url = forms.CharField(
        label=gettext_lazy("URL"), max_length=2048, widget=forms.URLInput(attrs={"class": "vURLField"})
    )
    events = forms.MultipleChoiceField(
        label=gettext_lazy("Event types"),
        choices=[(name, name) for name in EVENT_TYPES],
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Leave them all: what is not delivered is only found later, by reconciliation."),
    )
    #: Made with the page: however often it is sent, it is one endpoint.
    idempotency_key = forms.CharField(max_length=255, widget=forms.HiddenInput)

    def __init__(self, own: dict[str, str], *args: Any, **kwargs: Any) -> None:
        """``own``: the address of each account's webhook view."""
        super().__init__(*args, **kwargs)
        self._own = own
        account = cast("forms.ChoiceField", self.fields["account"])
        account.choices = [(alias, alias) for alias in own]
        if len(own) == 1:
            account.widget = forms.HiddenInput()
        else:
            listed = ", ".join(f"{alias}: {url}" for alias, url in own.items() if url)
            self.fields["url"].help_text = _("Each account has its own: %(addresses)s") % {"addresses": listed}

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for alias, url in self._own.items():
            if url and url == values.get("url") and alias != values.get("account"):
                words = _("This is the address of the account %(account)s.") % {"account": alias}
                self.add_error("url", words)
        return values


class CreatePage:
    """One request of the page that creates an endpoint; the view has checked the permission."""

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
            return self._page(EndpointForm(self._own, initial=initial))
        if self.request.method != "POST":
            return HttpResponseNotAllowed(["GET", "POST"])
        form = EndpointForm(self._own, self.request.POST)
        return self._create(form) if form.is_valid() else self._page(form)

    def _create(self, form: EndpointForm) -> HttpResponse:
        values = form.cleaned_data
        site = self.admin.admin_site
        if was_sent_for_another(values["idempotency_key"], values["account"]):
            return self._leave(messages.WARNING, str(outcomes.SENT_BEFORE))
        try:
            endpoint = services.create_webhook_endpoint(
                url=values["url"],
                events=values["events"],
                account=values["account"],
                idempotency_key=values["idempotency_key"],
                actor=self.request.user,
            )
        except ValidationError as error:
            for argument, message in outcomes.complaints(error):
                form.add_error(argument if argument in form.fields else None, message)
            return self._page(form)
        except (OutcomeUnknown, ApprovalRequired) as error:
            # Away from the form: it must not be sent again.
            self.admin.log_change(self.request, error.operation, _("Webhook endpoint asked for."))
            return self._leave(messages.WARNING, outcomes.explain(site, error))
        except IdempotencyMismatch as error:
            return self._leave(messages.WARNING, outcomes.explain(site, error))
        except (PaymentsError, ImproperlyConfigured) as error:
            form.add_error(None, outcomes.explain(site, error))
            # This refusal is this key's for ever; another try is another intent.
            typed = self.request.POST.copy()
            typed["idempotency_key"] = new_key()
            form.data = typed
            return self._page(form)
        self.admin.log_addition(self.request, endpoint, _("Created at the provider."))
        if endpoint.secret_token:
            words = _(
                "The endpoint was created. Its secret is stored encrypted and used from now on; it is not shown."
            )
            self.admin.message_user(self.request, words, messages.SUCCESS)
        else:
            self.admin.message_user(self.request, _("The endpoint was created. %s") % NO_SECRET, messages.WARNING)
        return self.admin.back(self.request, endpoint)

    def _leave(self, level: int, message: str) -> HttpResponse:
        self.admin.message_user(self.request, message, level)
        may_view = self.admin.has_view_permission(self.request)
        site = self.admin.admin_site
        index = reverse("admin:index", current_app=site.name)
        return HttpResponseRedirect(display.list_url(site, WebhookEndpoint) if may_view else index)

    def _page(self, form: EndpointForm) -> HttpResponse:
        site, opts = self.admin.admin_site, self.admin.opts
        shown = [name for name in form.fields if not form[name].is_hidden]
        may_view = self.admin.has_view_permission(self.request)
        context = {
            **site.each_context(self.request),
            "title": _("Create webhook endpoint"),
            "opts": opts,
            "crumbs": [
                *first_crumbs(self.admin),
                (display.list_url(site, WebhookEndpoint) if may_view else "", capfirst(str(opts.verbose_name_plural))),
                ("", _("Create")),
            ],
            "form": form,
            "hidden": [field for field in form if field.is_hidden],
            "adminform": helpers.AdminForm(
                cast("Any", form), [(None, {"fields": shown})], {}, (), model_admin=self.admin
            ),
            "media": self.admin.media + form.media,
        }
        self.request.current_app = site.name
        return TemplateResponse(self.request, "admin/payments_integration/webhookendpoint/add.html", context)


#: The provider names it once; where that answer was lost there is only a new one.
NO_SECRET = gettext_lazy("Its secret did not come with the answer: rotate it, or no delivery can be verified.")


def _is_there(endpoint: WebhookEndpoint) -> bool:
    return endpoint.deleted_at is None


def _rotated(endpoint: WebhookEndpoint | None) -> Outcome:
    if endpoint is not None and not endpoint.secret_token:
        return Outcome(_("The secret was rotated. %s") % NO_SECRET, messages.WARNING)
    return Outcome(
        _(
            "The secret was rotated: the new one is stored encrypted and used from now on. "
            "The old one stays valid for 24 hours."
        )
    )


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(MirrorAdmin):
    """Endpoints and whether we hold their secret."""

    list_display = ("id", "status_shown", "url", "secret_shown", "secret_age", "account", "created_at")
    list_filter = (filters.known("status", gettext_lazy("status"), ActiveStatus), filters.ACCOUNT)
    search_fields = ("id__startswith", "url__exact")
    search_help_text = gettext_lazy("The beginning of an id, or a whole URL")
    list_defer = ("extra", "events")
    buttons = (
        REFRESH,
        Button(
            name="rotate",
            label=gettext_lazy("Rotate secret"),
            permission="rotate",
            call=lambda obj, press: services.rotate_webhook_secret(obj, idempotency_key=press.key, actor=press.user),
            done=_rotated,
            logged=gettext_lazy("Secret rotated at the provider."),
            shown=lambda obj: _is_there(obj) and obj.gone_at is None,
            question=gettext_lazy("The provider makes a new secret; the old one stays valid for 24 hours."),
        ),
        Button(
            # Django has a "delete" of its own, which nobody may use.
            name="remove",
            label=gettext_lazy("Delete endpoint"),
            permission="manage",
            call=lambda obj, press: services.delete_webhook_endpoint(obj, idempotency_key=press.key, actor=press.user),
            done=gettext_lazy("The endpoint was deleted. Its row stays, without its secret."),
            logged=gettext_lazy("Deleted at the provider."),
            shown=_is_there,
            question=gettext_lazy("Nothing is delivered to this address any more; reconciliation still finds events."),
        ),
    )
    export = ("id", "status", "url", "secret_since", "account", "created_at")
    fieldsets = (
        (None, {"fields": ("id", "status_shown", "url_link", "events_shown")}),
        (
            gettext_lazy("Secret"),
            {"fields": ("secret_shown", "secret_since", "secret_age", "previous_secret_until")},
        ),
        (gettext_lazy("Times"), {"fields": ("created_at", "deleted_at")}),
        MIRROR_FIELDS,
    )

    status_shown = columns.status(gettext_lazy("status"), ActiveStatus)
    url_link = columns.web_link("url", gettext_lazy("URL"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request, "manage_webhookendpoint")

    def has_manage_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "manage_webhookendpoint", obj)

    def has_rotate_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "rotate_webhookendpoint", obj)

    def get_urls(self) -> list[URLPattern]:
        urls = super().get_urls()
        for url in urls:
            # It calls the provider.
            if url.name == self.url_name("add"):
                outside_transactions(url.callback)
        return urls

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return CreatePage(self, request).respond()

    @admin.display(description=gettext_lazy("event types"))
    def events_shown(self, obj: WebhookEndpoint) -> str:
        return display.text(", ".join(map(str, obj.events or ())))

    @admin.display(description=gettext_lazy("secret known"), boolean=True)
    def secret_shown(self, obj: WebhookEndpoint) -> bool:
        return bool(obj.secret_token)

    @admin.display(description=gettext_lazy("age of the secret"))
    def secret_age(self, obj: WebhookEndpoint) -> str:
        return since(obj.secret_since)

    class Media:
        css = {"all": STYLES}

    def sections(self, page: Page, obj: WebhookEndpoint) -> Iterable[Section]:
        return page.history(obj)
