"""Store the back office's data: notes of staff, what they did with the to-do list, saved filters and search terms."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.models.base import ObjectRef, Row

#: The longest search term, in characters.
MAX_TERM = 64


class Note(ObjectRef):
    """A text of staff about an object. Rows are added and never changed or deleted; an erasure empties their text.

    Only ``notes.add`` inserts rows. Notes are in no export, no search and no answer of the API.
    """

    #: Empty after an erasure.
    text: str = fields.TextField(_("note"), blank=True)
    #: A user's id and name, or a job's name, as in ``Operation.actor``.
    author: str = fields.CharField(_("author"), max_length=255)
    created_at: datetime = fields.DateTimeField(_("created at"), default=timezone.now)
    #: A hash of the form and its content, so that a form that is sent twice adds one note.
    key: str = fields.ExactCharField(max_length=64, unique=True, editable=False)

    class Meta:
        verbose_name = _("note")
        verbose_name_plural = _("notes")
        indexes = [
            # For an object's page, erasure, and the search of the admin's list.
            models.Index(fields=["account", "object_kind", "object_id", "created_at"], name="pb_note_object"),
            # For the admin's list.
            models.Index(fields=["created_at", "id"], name="pb_note_created"),
        ]

    def save(self, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("A note is never changed. Add another one.")
        super().save(**{**kwargs, "force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise TypeError("A note is never deleted.")


class Todo(ObjectRef):
    """The handling of one row of the to-do list: done with a note, snoozed or assigned.

    The row of the list itself is computed (``todo``). Only ``handling`` writes this model. If a thing happens again,
    its time is later than this row's, so it gets another row.
    """

    #: One of ``todo.Kind``.
    kind: str = fields.CharField(_("kind"), max_length=32)
    #: Identifies the thing within its kind. The object, by which an erasure finds the row, may be another one.
    thing: str = fields.ExactCharField(_("thing"), max_length=400)
    #: The time when it happened.
    since: datetime = fields.DateTimeField(_("since"))
    #: ``permissions.user_id`` of the person who takes care of it; empty if it is not assigned. No foreign key: users
    #: may be in another database.
    assignee: str = fields.ExactCharField(max_length=64, default="", blank=True)
    #: The same person, in the form of ``Operation.actor``.
    assignee_name: str = fields.CharField(_("assigned to"), max_length=255, default="", blank=True)
    snoozed_until: datetime | None = fields.DateTimeField(_("snoozed until"), null=True, blank=True)
    done_at: datetime | None = fields.DateTimeField(_("done at"), null=True, blank=True)
    #: The person, in the form of ``Operation.actor``.
    done_by: str = fields.CharField(_("done by"), max_length=255, default="", blank=True)
    #: Says what was done. Empty until it is done, and after an erasure.
    note: str = fields.TextField(_("note"), default="", blank=True)
    #: No column: False after a call of ``handling`` that changed nothing, such as the second click of two.
    is_changed = True

    class Meta:
        verbose_name = _("thing to do")
        verbose_name_plural = _("to do")
        default_permissions = ()
        permissions = [("handle_todo", "Can mark things to do as done, snooze and assign them")]
        constraints = [
            # If two people press "Done", one row is written. The list also finds the rows of its things by this index.
            models.UniqueConstraint(fields=["account", "kind", "thing", "since"], name="pb_todo_thing")
        ]
        indexes = [
            # For an object's page, and erasure.
            models.Index(fields=["account", "object_kind", "object_id"], name="pb_todo_object"),
            # For the list of done things.
            models.Index(fields=["account", "done_at"], name="pb_todo_done"),
        ]


class Overview(Todo):
    """A model without a table, which gives the overview an entry in the admin's index."""

    class Meta:
        proxy = True
        verbose_name = _("overview")
        verbose_name_plural = _("overview")
        default_permissions = ()


class SavedFilter(Row):
    """The filters of one of the admin's lists, under a name. Only the user who saved them sees them.

    They hold no search text, because it may be personal.
    """

    #: ``permissions.user_id``. No foreign key: users may be in another database.
    owner: str = fields.ExactCharField(_("owner"), max_length=64)
    #: The model of the list, as ``app_label.model_name``.
    listed: str = fields.ExactCharField(_("list"), max_length=100)
    name: str = fields.ExactCharField(_("name"), max_length=60)
    #: The query string, with only the parameters of the list's filters. A period such as "yesterday" stays relative.
    query: str = fields.TextField(_("filters"))

    class Meta:
        verbose_name = _("saved filter")
        verbose_name_plural = _("saved filters")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["owner", "listed", "name"], name="pb_saved_filter")]

    def __str__(self) -> str:
        return str(self.name)


class SearchTerm(Row):
    """One term by which an object is found."""

    object_kind: str = fields.CharField(_("object"), max_length=64)
    object_id: str = fields.ExactCharField(_("object id"))
    term: str = fields.ExactCharField(_("term"), max_length=MAX_TERM)
    #: True if it comes from a field that an erasure empties. It then matches only for users who may see personal data.
    is_personal: bool = fields.BooleanField(_("is personal"))

    class Meta:
        verbose_name = _("search term")
        verbose_name_plural = _("search terms")
        default_permissions = ()
        indexes = [
            # For the search, which reads only this index.
            models.Index(fields=["object_kind", "is_personal", "term", "object_id"], name="pb_search_term"),
            # For the terms of an object. Not unique: equal terms do no harm, but a conflict would repeat a batch.
            models.Index(fields=["object_kind", "object_id"], name="pb_search_object"),
        ]

    def __str__(self) -> str:
        return f"{self.object_kind} {self.object_id}"
