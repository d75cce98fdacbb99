"""Create, rotate and delete webhook endpoints. No page shows a secret."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import services
from payments_integration.admin import flows
from payments_integration.admin.base import MIRROR_FIELDS, REFRESH, MirrorAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display, twins
from payments_integration.admin.shared.buttons import Button, Outcome, Tool, Weight, may
from payments_integration.admin.shared.display import NO_SECRET
from payments_integration.admin.shared.sections import STYLES
from payments_integration.enums import ActiveStatus
from payments_integration.models import WebhookEndpoint


def _can_change(endpoint: WebhookEndpoint) -> bool:
    return endpoint.deleted_at is None and display.can_send(endpoint)


def _rotated(endpoint: WebhookEndpoint | None) -> Outcome:
    if endpoint is not None and not endpoint.secret_token:
        return Outcome(_("The secret was rotated. %s") % NO_SECRET, messages.WARNING)
    return Outcome(
        _(
            "The secret was rotated. The new one is stored encrypted and used from now on. "
            "The old one stays valid for 24 hours."
        )
    )


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(MirrorAdmin):
    """Endpoints. For each one, the list says if its secret is known."""

    list_display = ("url", "status_shown", "secret_shown", "secret_age", "created_at", "account", "id")
    list_filter = (filters.known("status", gettext_lazy("status"), ActiveStatus), filters.ACCOUNT)
    search_fields = ("id__startswith", "url__exact")
    search_help_text = gettext_lazy("The beginning of an id, or a whole URL")
    list_defer = ("extra", "events")
    buttons = (
        REFRESH,
        Button(
            name="rotate",
            label=gettext_lazy("Rotate secret"),
            permission="rotate_webhookendpoint",
            call=lambda obj, press: services.rotate_webhook_secret(obj, idempotency_key=press.key, actor=press.user),
            twin=twins.same("rotate_webhook_secret"),
            done=_rotated,
            logged=gettext_lazy("Secret rotated at the provider."),
            shown=lambda obj: _can_change(obj) and obj.gone_at is None,
            question=gettext_lazy("The provider makes a new secret; the old one stays valid for 24 hours."),
        ),
        Button(
            # The name "delete" belongs to Django's own delete page, which is closed.
            name="remove",
            label=gettext_lazy("Delete endpoint"),
            permission="manage_webhookendpoint",
            call=lambda obj, press: services.delete_webhook_endpoint(obj, idempotency_key=press.key, actor=press.user),
            twin=twins.same("delete_webhook_endpoint"),
            done=gettext_lazy("The endpoint was deleted. Its row stays, without its secret."),
            logged=gettext_lazy("Deleted at the provider."),
            shown=_can_change,
            question=gettext_lazy("Nothing is delivered to this URL any more. Reconciliation still finds events."),
        ),
    )
    fieldsets = (
        (None, {"fields": ("id", "status_shown", "url_link", "events_shown")}),
        (gettext_lazy("Secret"), {"fields": ("secret_shown", "secret_since", "secret_age", "previous_secret_until")}),
        (gettext_lazy("Times"), {"fields": ("created_at", "deleted_at")}),
        MIRROR_FIELDS,
    )

    status_shown = columns.status(gettext_lazy("status"), ActiveStatus)
    url_link = columns.value("url", gettext_lazy("URL"), display.web_link)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request, "manage_webhookendpoint")

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        if self.has_add_permission(request):
            url = display.page_url(self.admin_site, WebhookEndpoint, "add")
            yield Tool(_("Create webhook endpoint"), url, post=False, weight=Weight.MAIN)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return flows.WebhookEndpointPage(self, request).respond()

    @admin.display(description=gettext_lazy("event types"))
    def events_shown(self, obj: WebhookEndpoint) -> str:
        return display.text(", ".join(map(str, obj.events or ())))

    @admin.display(description=gettext_lazy("secret known"), boolean=True)
    def secret_shown(self, obj: WebhookEndpoint) -> bool:
        # Imports a large library, which starting the app does not need.
        from payments_integration.projection import has_unreadable_secret  # noqa: PLC0415

        return bool(obj.secret_token) and not has_unreadable_secret(obj)

    @admin.display(description=gettext_lazy("age of the secret"))
    def secret_age(self, obj: WebhookEndpoint) -> str:
        return display.time_since(obj.secret_since)

    class Media:
        css = {"all": STYLES}
