"""Notes: what staff wrote about an object, on its page and in a list of all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration.admin import flows
from payments_integration.admin.base import MirrorAdmin, ReadOnlyAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns
from payments_integration.admin.shared.buttons import may
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.models import Note


class NotedAdmin(MirrorAdmin):
    """The page of an object that staff may write notes about."""

    fieldsets: ClassVar[Any] = ()

    def has_add_note_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "add_note", obj)

    def get_urls(self) -> list[URLPattern]:
        return [self.object_path("add-note", self.add_note_view), *super().get_urls()]

    # An error report must not contain the note.
    @method_decorator(sensitive_post_parameters("text"))
    def add_note_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return flows.NotePage(self, request, self.permitted(request, object_id, "add_note")).respond()

    def sections(self, page: Page, obj: Any) -> Iterable[Section]:
        yield from flows.notes_section(self, page, obj)
        yield from super().sections(page, obj)


@admin.register(Note)
class NoteAdmin(ReadOnlyAdmin):
    """Every note. There is no export: notes stay here."""

    list_display = ("created_at", "object_shown", "author_shown", "text_shown", "account")
    list_filter = (filters.days("created_at"),)
    ordering = ("-created_at", "-pk")
    sortable_by = ("created_at",)
    aged = ("created_at",)
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of a payment, payout, refund or deposit reference")
    personal = ("text_shown",)
    fieldsets = ((None, {"fields": ("object_shown", "author_shown", "created_at", "text_shown", "account")}),)

    object_shown = columns.object_link(_("object"))
    author_shown = columns.actor("author", _("author"))
    text_shown = columns.note_text("text", _("note"))
