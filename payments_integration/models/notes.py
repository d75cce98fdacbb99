"""Internal notes of staff on mirrored objects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.models.base import ObjectRef


class Note(ObjectRef):
    """What staff wrote about an object. Rows are added and never changed or deleted; an erasure empties their text.

    Only ``notes.add`` inserts them. They are in no export, no search and no answer of the API.
    """

    #: Empty after an erasure.
    text: str = fields.TextField(_("note"), blank=True)
    #: A user's id and name, or a job's name, as in ``Operation.actor``.
    author: str = fields.CharField(_("author"), max_length=255)
    created_at: datetime = fields.DateTimeField(_("created at"), default=timezone.now)
    #: A hash of the form and of what was written in it, so that a form that is sent twice adds one note.
    key: str = fields.ExactCharField(  # type: ignore[assignment]  # it takes the place of ObjectRef.key
        max_length=64, unique=True, editable=False
    )

    class Meta:
        verbose_name = _("note")
        verbose_name_plural = _("notes")
        indexes = [
            # An object's page, erasure, and the search of the admin's list.
            models.Index(fields=["account", "object_kind", "object_id", "created_at"], name="pi_note_object"),
            # The admin's list.
            models.Index(fields=["created_at", "id"], name="pi_note_created"),
        ]

    def save(self, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("A note is never changed. Add another one.")
        super().save(**{**kwargs, "force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise TypeError("A note is never deleted.")
