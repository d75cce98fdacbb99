"""How the mirror is kept complete: reconciliation, and what is due to be read anew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.admin import columns, display, filters, running
from payments_integration.admin.base import ReadOnlyAdmin, outside_transactions
from payments_integration.admin.buttons import Tool, may
from payments_integration.admin.panels import Section
from payments_integration.admin.sections import Page, Table
from payments_integration.enums import Kind
from payments_integration.models import AccountState, DueRefresh, Erasure, ReconciliationRun, RunKind, RunState

#: What an id begins with, and the kind of object that has it (spec, "Resources and their fields").
_PREFIXES = {"pay_": Kind.PAYMENT, "pout_": Kind.PAYOUT, "ref_": Kind.REFUND, "dep_": Kind.DEPOSIT_REFERENCE}


def _accounts() -> list[tuple[str, str]]:
    return [(alias, alias) for alias in conf.aliases()]


class RunForm(forms.Form):
    """Which pass."""

    account = forms.ChoiceField(label=_("Account"), choices=_accounts)
    kind = forms.ChoiceField(label=_("What"), choices=[(kind.value, kind.label) for kind in running.KINDS])


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
        (_("Found"), {"fields": ("seen", "recovered", "drifted", "repaired")}),
        (_("Times"), {"fields": ("started_at", "finished_at", "duration_shown")}),
    )

    state_shown = columns.status(_("state"), RunState, "state")
    error_shown = columns.preformatted("error", _("error"))

    @admin.display(description=_("duration"))
    def duration_shown(self, obj: ReconciliationRun) -> str:
        return display.EMPTY if obj.duration is None else _("%(seconds).1f s") % {"seconds": obj.duration}

    def sections(self, page: Page, obj: ReconciliationRun) -> Iterable[Section]:
        if obj.drift:
            heads = (_("Object"), _("Field"), _("Here"), _("At the provider"))
            yield Table(_("Drift"), heads, list(self._drift(obj)), "", _("At most a hundred differences are kept."))

    def _drift(self, obj: ReconciliationRun) -> Iterator[tuple[str, ...]]:
        for entry in obj.drift if isinstance(obj.drift, list) else ():
            known = entry if isinstance(entry, dict) else {}
            object_id = str(known.get("object") or "")
            kind = next((kind for prefix, kind in _PREFIXES.items() if object_id.startswith(prefix)), "")
            yield (
                display.object_link(self.admin_site, obj.account, kind, object_id),
                *(_plain(known.get(name)) for name in ("field", "ours", "theirs")),
            )

    def get_urls(self) -> list[URLPattern]:
        def now(request: HttpRequest) -> HttpResponse:
            return self.run_view(request)

        view: Any = self.admin_site.admin_view(outside_transactions(now))
        return [path("run/", view, name=self.url_name("run")), *super().get_urls()]

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        if not may(request, "run_reconciliation"):
            return
        form = RunForm(initial={"account": next(iter(conf.aliases()), "")}, auto_id="pi-run-%s")
        yield Tool(
            _("Run now"), running.url(self.admin_site), question=_("A pass beside another does no harm."), form=form
        )

    def run_view(self, request: HttpRequest) -> HttpResponse:
        """Start a pass, and say what became of it."""
        if not may(request, "run_reconciliation"):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        form = RunForm(request.POST)
        if not form.is_valid():
            self.message_user(request, gettext("There is no such account or kind of pass."), messages.ERROR)
            return self._leave(request)
        account, kind = form.cleaned_data["account"], form.cleaned_data["kind"]
        outcome, row = running.start(account, kind, request.user)
        self.log_change(request, row, gettext("Run now: %(kind)s.") % {"kind": RunKind(kind).label})
        words = {"account": account, "kind": capfirst(str(RunKind(kind).label)), "outcome": outcome.text}
        self.message_user(request, gettext("%(kind)s (%(account)s): %(outcome)s") % words, outcome.level)
        return self._leave(request)

    def _leave(self, request: HttpRequest) -> HttpResponse:
        if self.has_view_permission(request):
            return HttpResponseRedirect(display.list_url(self.admin_site, self.model))
        return HttpResponseRedirect(reverse("admin:index", current_app=self.admin_site.name))


def _plain(value: Any) -> str:
    return display.text(value if value is None or isinstance(value, str) else json.dumps(value, default=str))


@admin.register(AccountState)
class AccountStateAdmin(ReadOnlyAdmin):
    list_display = ("account", "watermark", "swept_at", "clock_offset")
    ordering = ("account",)
    export = ("account", "watermark", "swept_at", "clock_offset")
    fieldsets = (
        (None, {"fields": ("account", "watermark", "swept_at", "clock_offset")}),
        (_("Running pass"), {"fields": ("window_from", "window_to", "lease_until")}),
    )


@admin.register(Erasure)
class ErasureAdmin(ReadOnlyAdmin):
    """What is kept free of personal data, and what still waits to be."""

    list_display = ("id", "object_shown", "kind_shown", "requested_at", "done_at", "actor", "account")
    list_filter = (filters.ACCOUNT,)
    ordering = ("-pk",)
    sortable_by = ()
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of an object")
    export = ("object_kind", "object_id", "actor", "account", "requested_at", "done_at")
    fieldsets = (
        (None, {"fields": ("object_shown", "kind_shown", "account")}),
        (_("Erasure"), {"fields": ("requested_at", "done_at", "actor")}),
    )

    object_shown = columns.object_link(_("object"))
    kind_shown = columns.plain("object_kind", _("kind"))


@admin.register(DueRefresh)
class DueRefreshAdmin(ReadOnlyAdmin):
    list_display = ("id", "object_shown", "kind_shown", "reason", "due_at", "attempts", "account")
    list_filter = (filters.ACCOUNT,)
    ordering = ("due_at", "pk")
    sortable_by = ("due_at",)
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of an object")
    list_defer = ("error",)
    personal = ("error_shown",)
    export = ("object_kind", "object_id", "reason", "attempts", "account", "due_at")
    fieldsets = (
        (None, {"fields": ("object_shown", "kind_shown", "account", "reason", "due_at")}),
        (_("Attempts"), {"fields": ("attempts", "error_shown")}),
    )

    object_shown = columns.object_link(_("object"))
    kind_shown = columns.plain("object_kind", _("kind"))
    error_shown = columns.preformatted("error", _("error"))
