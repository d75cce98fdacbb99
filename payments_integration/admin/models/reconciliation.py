"""How the mirror stays complete: reconciliation runs, watermarks, due refreshes and erasures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration import conf
from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.flows import reconcile
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import Tool, may
from payments_integration.admin.shared.sections import Page, Section, Table
from payments_integration.enums import kind_of
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Erasure,
    ReconciliationRun,
    RefreshReason,
    RunKind,
    RunState,
)


def _accounts() -> list[tuple[str, str]]:
    return [(alias, alias) for alias in conf.aliases()]


class RunForm(forms.Form):
    """The account and the kind of pass."""

    account = forms.ChoiceField(label=_("Account"), choices=_accounts)
    kind = forms.ChoiceField(label=_("What"), choices=[(kind.value, kind.label) for kind in reconcile.KINDS])


@admin.register(ReconciliationRun)
class ReconciliationRunAdmin(ReadOnlyAdmin):
    list_display = (
        "started_at", "kind", "state_shown", "seen", "recovered", "drifted", "repaired", "duration_shown", "account",
    )  # fmt: skip
    list_filter = (
        filters.known("kind", _("kind"), RunKind, open_ended=False),
        filters.known("state", _("state"), RunState, open_ended=False),
        filters.ACCOUNT,
        filters.days("started_at"),
    )
    ordering = ("-started_at", "-pk")
    sortable_by = ("started_at",)
    list_defer = ("drift", "error")
    personal = ("error_shown",)
    export = (
        "kind", "state", "pages", "seen", "recovered", "drifted", "repaired", "account", "window_from", "window_to",
        "started_at", "finished_at",
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": ("kind", "state_shown", "account", "error_shown")}),
        (_("Window"), {"fields": ("window_from", "window_to", "pages")}),
        (_("Result"), {"fields": ("seen", "recovered", "drifted", "repaired")}),
        (_("Times"), {"fields": ("started_at", "finished_at", "duration_shown")}),
    )

    state_shown = columns.status(_("state"), RunState, "state")
    error_shown = columns.preformatted("error", _("error"))

    @admin.display(description=_("duration"))
    def duration_shown(self, obj: ReconciliationRun) -> str:
        return display.seconds(obj.duration)

    def sections(self, page: Page, obj: ReconciliationRun) -> Iterable[Section]:
        if obj.drift:
            heads = (_("Object"), _("Field"), _("Here"), _("At the provider"))
            yield Table(_("Drift"), heads, list(self._drift(obj)), "", _("At most a hundred differences are kept."))

    def _drift(self, obj: ReconciliationRun) -> Iterator[tuple[str, ...]]:
        for entry in obj.drift if isinstance(obj.drift, list) else ():
            values = entry if isinstance(entry, dict) else {}
            object_id = str(values.get("object") or "")
            yield (
                display.object_link(self.admin_site, obj.account, kind_of(object_id) or "", object_id),
                *(_plain(values.get(name)) for name in ("field", "ours", "theirs")),
            )

    def get_urls(self) -> list[URLPattern]:
        return [self.list_path("run", self.run_view), *super().get_urls()]

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        if not may(request, "run_reconciliation"):
            return
        form = RunForm(initial={"account": next(iter(conf.aliases()), "")}, auto_id="pi-run-%s")
        question = _("If another pass of this account is running, this one is skipped.")
        yield Tool(_("Run now"), reconcile.url(self.admin_site), question=question, form=form)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        """Start a pass, and show a message with its result."""
        if not may(request, "run_reconciliation"):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        form = RunForm(request.POST)
        if not form.is_valid():
            self.message_user(request, gettext("There is no such account or kind of pass."), messages.ERROR)
            return self.to_list(request)
        account, kind = form.cleaned_data["account"], form.cleaned_data["kind"]
        outcome, row = reconcile.start(account, kind, request.user)
        self.log_change(request, row, gettext("Run now: %(kind)s.") % {"kind": RunKind(kind).label})
        words = {"account": account, "kind": capfirst(str(RunKind(kind).label)), "outcome": outcome.text}
        self.message_user(request, gettext("%(kind)s (%(account)s): %(outcome)s") % words, outcome.level)
        return self.to_list(request)


def _plain(value: Any) -> str:
    return display.text(value if value is None or isinstance(value, str) else json.dumps(value, default=str))


@admin.register(AccountState)
class AccountStateAdmin(ReadOnlyAdmin):
    """The watermark and the clock offset of each account."""

    list_display = ("account", "watermark", "swept_at", "offset_shown")
    ordering = ("account",)
    export = ("account", "watermark", "swept_at", "clock_offset")
    fieldsets = (
        (None, {"fields": ("account", "watermark", "swept_at", "offset_shown")}),
        (_("Running pass"), {"fields": ("window_from", "window_to", "lease_until")}),
    )

    @admin.display(description=_("clock offset"))
    def offset_shown(self, obj: AccountState) -> str:
        return display.seconds(obj.clock_offset, signed=True)

    def get_urls(self) -> list[URLPattern]:
        return [self.list_path("technical", self.technical_view), *super().get_urls()]

    def technical_view(self, request: HttpRequest) -> HttpResponse:
        """The technical state of an account: events, backlog, reconciliation and webhook endpoints."""
        # Loaded with the first page that is opened, not at start-up.
        from payments_integration.admin.dashboard.account_page import may_see_technical_state  # noqa: PLC0415
        from payments_integration.admin.dashboard.technical import TechnicalState  # noqa: PLC0415

        if not may_see_technical_state(self.admin_site, request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        title = gettext("Technical state")
        context = {"title": title, **TechnicalState(self.admin_site, request).context()}
        return self.render_page(request, "admin/payments_integration/technical.html", context, [("", title)])


@admin.register(Erasure)
class ErasureAdmin(ReadOnlyAdmin):
    """The objects whose personal data was erased, or is to be erased."""

    list_display = ("id", "object_shown", "kind_shown", "requested_at", "done_at", "actor_shown", "account")
    list_filter = (filters.ACCOUNT,)
    ordering = ("-pk",)
    sortable_by = ()
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of an object")
    export = ("object_kind", "object_id", "actor", "account", "requested_at", "done_at")
    fieldsets = (
        (None, {"fields": ("object_shown", "kind_shown", "account")}),
        (_("Erasure"), {"fields": ("requested_at", "done_at", "actor_shown")}),
    )

    object_shown = columns.object_link(_("object"))
    actor_shown = columns.actor("actor", _("actor"))
    kind_shown = columns.kind()


@admin.register(DueRefresh)
class DueRefreshAdmin(ReadOnlyAdmin):
    """The objects that are due to be read from the provider."""

    list_display = ("id", "object_shown", "kind_shown", "reason_shown", "due_at", "attempts", "account")
    list_filter = (filters.ACCOUNT,)
    ordering = ("due_at", "pk")
    sortable_by = ("due_at",)
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of an object")
    list_defer = ("error",)
    personal = ("error_shown",)
    export = ("object_kind", "object_id", "reason", "attempts", "account", "due_at")
    fieldsets = (
        (None, {"fields": ("object_shown", "kind_shown", "account", "reason_shown", "due_at")}),
        (_("Attempts"), {"fields": ("attempts", "error_shown")}),
    )

    object_shown = columns.object_link(_("object"))
    kind_shown = columns.kind()
    reason_shown = columns.choice("reason", _("reason"), RefreshReason)
    error_shown = columns.preformatted("error", _("error"))
