"""Empty the texts of staff when a payer's personal data is erased.

Personal search terms need no eraser: they are deleted when the mirror row's values are.
"""

from __future__ import annotations

from django.db.models import QuerySet

from payments_integration.contrib.backoffice.models import Note, Todo
from payments_integration.erasure import Eraser


class NotesEraser(Eraser):
    """An eraser of the texts of notes. Their authors and times stay."""

    name = ("note", "notes")
    text = "text"

    def rows(self) -> QuerySet[Note]:
        return Note.objects.exclude(text="")

    def erase(self, rows: QuerySet[Note]) -> int:
        return rows.update(text="")


class TodoEraser(Eraser):
    """An eraser of the notes with which things were done. The person and the time stay."""

    name = ("note of something done", "notes of things done")
    text = "note"

    def rows(self) -> QuerySet[Todo]:
        return Todo.objects.exclude(note="")

    def erase(self, rows: QuerySet[Todo]) -> int:
        return rows.update(note="")
