"""Show notes on an object's page, and add notes on a page of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.debug import sensitive_variables

from payments_integration.admin.flows.forms import KeyedForm
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import new_key
from payments_integration.admin.shared.display import validation_messages
from payments_integration.admin.shared.sections import ROWS, Page, Section, about, once
from payments_integration.contrib.backoffice import notes
from payments_integration.contrib.backoffice.admin.sections.story import Step
from payments_integration.contrib.backoffice.models import Note

if TYPE_CHECKING:
    from payments_integration.admin.base import ReadOnlyAdmin


class NoteForm(KeyedForm):
    """One note. ``notes.add`` checks its length."""

    text = forms.CharField(
        label=gettext_lazy("Note"),
        widget=forms.Textarea(attrs={"rows": 3, "maxlength": notes.MAX_LENGTH, "autocomplete": "off"}),
        error_messages={"required": gettext_lazy("The note is empty. Write something first.")},
        help_text=gettext_lazy("Only staff can read it. It cannot be changed or deleted."),
    )


@dataclass(frozen=True, slots=True)
class Notes(Section):
    template: ClassVar[str] = "admin/payments_backoffice/includes/notes.html"

    #: The URL of the list with all notes; empty if the story shows all.
    more: str
    #: The form; None if the user may not add notes.
    form: NoteForm | None
    #: The URL to which the form posts.
    url: str
    is_erased: bool


def note_steps(page: Page, obj: Any) -> Iterable[Step]:
    """Yield the newest notes, as steps of the story."""
    for note in _newest(page, obj)[:ROWS]:
        yield Step(note.created_at, format_html(_("{} noted"), display.actor(note.author)), text=_text(page, note))


def _newest(page: Page, obj: Any) -> list[Note]:
    """Return one note more than are shown; none if the user may not see them."""
    rows = about(Note, obj).order_by("-created_at", "-pk")[: ROWS + 1]
    return once(obj, "pi_notes", lambda: list(rows) if page.may_view(Note) else [])


def notes_section(model_admin: Any, page: Page, obj: Any) -> Iterable[Section]:
    """Yield a form to add a note and a link to older notes; nothing if the user may neither see nor add notes."""
    may_add = model_admin.has_add_note_permission(page.request, obj)
    if not (page.may_view(Note) or may_add):
        return
    more = ""
    if len(_newest(page, obj)) > ROWS:
        more = f"{display.list_url(page.site, Note)}?{urlencode({'q': obj.object_id})}"
    yield Notes(
        more=more,
        form=_unbound() if may_add and obj.erased_at is None else None,
        url=model_admin.object_url("add-note", obj),
        is_erased=obj.erased_at is not None,
    )


def _text(page: Page, note: Note) -> str:
    return page.personal(note.text) if note.text else str(display.ERASED)


def _unbound() -> NoteForm:
    return NoteForm(initial={"idempotency_key": new_key()}, auto_id="pi-note-%s")


class NotePage:
    """One request of the page: it adds the note, or shows the form again with its text and the error."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest, obj: Any) -> None:
        self.admin = model_admin
        self.request = request
        self.obj = obj

    # Error reports must not contain the note, neither from this function nor from functions that it calls.
    @sensitive_variables()
    def respond(self) -> HttpResponse:
        if self.request.method in ("GET", "HEAD"):
            return self._page(_unbound())
        if self.request.method != "POST":
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        form = NoteForm(self.request.POST, auto_id="pi-note-%s")
        if form.is_valid():
            try:
                notes.add(
                    self.obj,
                    form.cleaned_data["text"],
                    author=self.request.user,
                    key=form.cleaned_data["idempotency_key"],
                )
            except ValidationError as error:
                for argument, message in validation_messages(error):
                    name, words = form.field_of(argument, message)
                    form.add_error(name, words)
            else:
                self.admin.message_user(self.request, _("The note was added."), messages.SUCCESS)
                return self.admin.back(self.request, self.obj)
        return self._page(form)

    def _page(self, form: NoteForm) -> HttpResponse:
        # Without the right to view the object, there is no page to go back to.
        may_view = self.admin.has_view_permission(self.request, self.obj)
        url = self.admin.object_url("change", self.obj) if may_view else ""
        title = _("Add a note")
        plural = self.admin.opts.verbose_name_plural
        crumbs = [
            (self.admin.visible_list_url(self.request), str(plural).capitalize()),
            (url, self.obj.object_id),
            ("", title),
        ]
        context = {"title": title, "form": form, "hidden": form.hidden_fields()}
        return self.admin.render_page(self.request, "admin/payments_backoffice/note.html", context, crumbs)
