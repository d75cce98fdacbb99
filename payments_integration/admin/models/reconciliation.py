"""Show how the mirror stays complete: reconciliation runs, and the technical state of an account."""

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
from payments_integration.admin.shared.buttons import NOTHING_DONE, Tool, may
from payments_integration.admin.shared.sections import Page, Section, Table
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.enums import kind_of
from payments_integration.models import ReconciliationRun, RunKind, RunState


class RunForm(TypedForm):
    account = forms.ChoiceField(label=_("Account"), choices=conf.account_choices)
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
        "started_at",
    )
    ordering = ("-started_at", "-pk")
    sortable_by = ("started_at",)
    list_defer = ("drift", "error")
    personal = ("error_shown",)
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
            yield Table(
                _("Drift"), heads, list(self._drift(page, obj)), "", _("At most a hundred differences are kept.")
            )

    def _drift(self, page: Page, obj: ReconciliationRun) -> Iterator[tuple[str, ...]]:
        for entry in obj.drift if isinstance(obj.drift, list) else ():
            values = entry if isinstance(entry, dict) else {}
            object_id = str(values.get("object") or "")
            yield (
                display.object_link(page.site, obj.account, kind_of(object_id) or "", object_id),
                *(_plain(values.get(name)) for name in ("field", "ours", "theirs")),
            )

    def get_urls(self) -> list[URLPattern]:
        own = [self.list_path("run", self.run_view), self.list_path("technical", self.technical_view)]
        return [*own, *super().get_urls()]

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        yield Tool(_("Technical state"), display.page_url(self.admin_site, ReconciliationRun, "technical"), post=False)
        if url := reconcile.url(self.admin_site, request):
            form = RunForm(initial={"account": next(iter(conf.aliases()), "")}, auto_id="pi-run-%s")
            question = _("If another pass of this account is running, this one is skipped.")
            yield Tool(_("Run now"), url, question=question, form=form)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        if not may(request, "run_reconciliation"):
            raise PermissionDenied
        if request.method != "POST":
            self.message_user(request, NOTHING_DONE, messages.WARNING)
            return self.to_list(request)
        form = RunForm(request.POST)
        if not form.is_valid():
            self.message_user(request, gettext("There is no such account or kind of pass."), messages.ERROR)
            return self.to_list(request)
        account, kind = form.cleaned_data["account"], form.cleaned_data["kind"]
        outcome, row = reconcile.start(account, kind, request.user)
        self.log_change(request, row, gettext("Run now: %(kind)s.") % {"kind": RunKind(kind).label})
        words = {
            "account": conf.account_name(account),
            "kind": capfirst(str(RunKind(kind).label)),
            "outcome": outcome.text,
        }
        self.message_user(request, gettext("%(kind)s (%(account)s): %(outcome)s") % words, outcome.level)
        return self.to_list(request)

    def technical_view(self, request: HttpRequest) -> HttpResponse:
        # Loaded with the first page that is opened, because Django imports this module in every process.
        from payments_integration.admin.technical.account_page import may_see_technical_state  # noqa: PLC0415
        from payments_integration.admin.technical.page import TechnicalState  # noqa: PLC0415

        if not may_see_technical_state(self.admin_site, request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        title = gettext("Technical state")
        context = {"title": title, **TechnicalState(self.admin_site, request).context()}
        return self.render_page(request, "admin/payments_integration/technical.html", context, [("", title)])


def _plain(value: Any) -> str:
    return display.text(value if value is None or isinstance(value, str) else json.dumps(value, default=str))
