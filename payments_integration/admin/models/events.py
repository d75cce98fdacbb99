"""Show events and status changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import ValidationError
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _, ngettext_lazy

from payments_integration import inbox, wakeup
from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import Button, Outcome, Press, may
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import Event, EventState, StatusChange

#: Dispatched and parked rows can be dispatched again. Quarantined events can be parsed again.
REPLAYABLE = (EventState.PARKED, EventState.DONE, EventState.QUARANTINED)
#: The maximum seconds that a page waits for receivers. A worker or the scheduled sweeper does the rest.
_MAX_WAIT = 4.0
#: What the replay of selected rows reports, in this order.
_REPLAYS = {
    "replayed": (messages.SUCCESS, ngettext_lazy("%d will be dispatched again.", "%d will be dispatched again.")),
    "released": (messages.SUCCESS, ngettext_lazy("%d left the quarantine.", "%d left the quarantine.")),
    "kept": (messages.WARNING, ngettext_lazy("%d stays in quarantine.", "%d stay in quarantine.")),
    "repeated": (messages.WARNING, ngettext_lazy(
        "%d was left out because it was replayed since this page was made.",
        "%d were left out because they were replayed since this page was made.",
    )),
    "skipped": (messages.WARNING, ngettext_lazy(
        "%d was left out because it has not been dispatched yet.",
        "%d were left out because they have not been dispatched yet.",
    )),
}  # fmt: skip


class SeenForm(forms.Form):
    """Carries when the page was made: a second click must not replay what the first one has dispatched."""

    seen_at = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput, label="", initial=timezone.now)

    def clean_seen_at(self) -> datetime | None:
        return _time_of(self.cleaned_data["seen_at"])


class SeenActionForm(SeenForm, ActionForm):
    """The form of the list's actions."""


def _time_of(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if timezone.is_aware(found) else None


def _replay(item: Any, press: Press) -> None:
    """Mark a row to be dispatched again (in quarantine: parse it again), and wake the processor after commit."""
    if not inbox.replay(item, actor=press.user, seen_at=press.answers["seen_at"]):
        raise ValidationError(_("It was replayed since this page was made. Nothing more was done."))
    _wake(item.account)


def _wake(account: str) -> None:
    transaction.on_commit(
        lambda: wakeup.wake(account, deadline=time.monotonic() + _MAX_WAIT),
        using=router.db_for_write(Event),
        robust=True,
    )


def _replayed(item: Any | None) -> Outcome:
    if item is None:
        return Outcome(_("It left the quarantine and is now processed like any other event."))
    if item.state == EventState.QUARANTINED:
        return Outcome(_("It still cannot be understood, and stays in quarantine."), messages.WARNING)
    return Outcome(_("It will be dispatched again."))


class ReplayAdmin(ReadOnlyAdmin):
    """Rows that are dispatched to receivers and can be replayed."""

    actions = ("replay_selected",)
    buttons = (
        Button(
            name="replay",
            label=_("Replay"),
            permission="replay_event",
            call=_replay,
            twin=None,
            done=_replayed,
            logged=_("Replayed."),
            shown=lambda obj: obj.state in REPLAYABLE,
            question=_("Every receiver is called again. A quarantined event is parsed again."),
            form=SeenForm,
        ),
    )
    action_form = SeenActionForm

    def has_replay_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "replay_event", obj)

    @admin.action(description=_("Replay selected rows"), permissions=["replay"])
    def replay_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        accounts, counts = set(), Counter[str]()
        seen_at = _time_of(request.POST.get("seen_at", ""))
        # Oldest first: a worker may dispatch one before the next is released, and an older one would then be stale.
        for item in list(queryset.order_by(*self.get_ordering(request)).reverse()):
            if item.state not in REPLAYABLE:
                counts["skipped"] += 1
                continue
            if not inbox.replay(item, actor=request.user, seen_at=seen_at):
                counts["repeated"] += 1
                continue
            self.log_change(request, item, str(_("Replayed.")))
            accounts.add(item.account)
            if item.state != EventState.QUARANTINED:
                counts["replayed"] += 1
            elif self.model._default_manager.filter(pk=item.pk).exists():
                counts["kept"] += 1
            else:
                counts["released"] += 1
        for account in accounts:
            _wake(account)
        for what, (level, words) in _REPLAYS.items():
            if counts[what]:
                self.message_user(request, words % counts[what], level)


@admin.register(Event)
class EventAdmin(ReplayAdmin):
    list_display = (
        "type_shown", "state_shown", "object_shown", "created_at", "source", "attempts", "account", "id",
    )  # fmt: skip
    list_filter = (
        filters.known("state", _("state"), EventState, open_ended=False),
        filters.known("type", _("type"), lambda: [(name, display.event_name(name)) for name in EVENT_TYPES]),
        filters.ACCOUNT,
        "created_at",
    )
    ordering = ("-created_at", "-pk")
    sortable_by = ("created_at",)
    search_fields = ("id__startswith", "object_id__exact")
    search_help_text = _("The beginning of an event's id, or the whole id of its object")
    list_defer = ("body", "error")
    linked = ("object_shown",)
    personal = ("body_shown", "error_shown")
    fieldsets = (
        (None, {"fields": ("id", "type", "object_shown", "account", "source", "created_at", "received_at")}),
        (_("Dispatch"), {"fields": ("state_shown", "previous_status", "dispatched_at", "attempts", "error_shown")}),
        (_("Content"), {"fields": ("body_shown", "content_hash")}),
    )

    state_shown = columns.status(_("state"), EventState, "state")
    object_shown = columns.object_link(_("object"))
    type_shown = columns.value("type", _("type"), display.event_name)
    # A receiver can fail only after its event is applied. Before that, the text says what is wrong with the body.
    error_shown = columns.traceback(
        "error", _("error"), is_reason=lambda obj: obj.state in (EventState.QUARANTINED, EventState.PENDING)
    )
    # A quarantined body is shown exactly as it was delivered.
    body_shown = columns.body("body", _("body"), exact=lambda obj: obj.state == EventState.QUARANTINED)

    def sections(self, page: Page, obj: Event) -> Iterable[Section]:
        return page.changes(obj.status_changes.order_by("-at", "-pk"), obj.object_id)


@admin.register(StatusChange)
class StatusChangeAdmin(ReplayAdmin):
    """Status changes. Objects and events link to them: only for users who see nothing else, Django's menu does too."""

    list_display = (
        "kind_shown", "state_shown", "object_shown", "previous_status_shown", "new_status_shown", "at", "event_link",
        "account", "id",
    )  # fmt: skip
    list_filter = (filters.known("state", _("state"), EventState, open_ended=False), filters.ACCOUNT, "at")
    ordering = ("-at", "-pk")
    sortable_by = ("at",)
    search_fields = ("object_id__exact", "event_id__exact")
    search_help_text = _("The whole id of an object or of an event")
    list_defer = ("error",)
    linked = ("object_shown", "event_link")
    personal = ("error_shown",)
    fieldsets = (
        (
            None,
            {"fields": ("object_shown", "kind_shown", "account", "previous_status_shown", "new_status_shown", "at")},
        ),
        (_("Brought by"), {"fields": ("event_link", "recorded_at")}),
        (_("Dispatch"), {"fields": ("state_shown", "dispatched_at", "attempts", "error_shown")}),
    )

    object_shown = columns.object_link(_("object"))
    kind_shown = columns.value("object_kind", _("kind"), display.kind_word)
    previous_status_shown = columns.status_word("previous_status", _("previous status"))
    new_status_shown = columns.status_word("status", _("status"))
    event_link = columns.row_link("event_id", _("event"), Event)
    state_shown = columns.status(_("state"), EventState, "state")
    error_shown = columns.traceback("error", _("error"))

    def has_module_permission(self, request: HttpRequest) -> bool:
        listed = (
            other.has_module_permission(request) and other.has_view_permission(request)
            for model, other in self.admin_site._registry.items()
            if model._meta.app_label == self.opts.app_label and model is not self.model
        )
        return super().has_module_permission(request) and not any(listed)
