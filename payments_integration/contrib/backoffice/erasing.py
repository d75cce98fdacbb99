"""What an erasure of a payer's personal data empties here. Personal search terms go with the mirror row's values."""

from __future__ import annotations

from django.db.models import QuerySet

from payments_integration.contrib.backoffice.models import Note, Todo
from payments_integration.erasure import Eraser


class NotesEraser(Eraser):
    """Empties the texts of notes; their authors and times stay."""

    name = ("note", "notes")
    text = "text"

    def rows(self) -> QuerySet[Note]:
        return Note.objects.exclude(text="")

    def erase(self, rows: QuerySet[Note]) -> int:
        return rows.update(text="")


class TodoEraser(Eraser):
    """Empties the notes with which things were done; who did them, and when, stays."""

    name = ("note of something done", "notes of things done")
    text = "note"

    def rows(self) -> QuerySet[Todo]:
        return Todo.objects.exclude(note="")

    def erase(self, rows: QuerySet[Todo]) -> int:
        return rows.update(note="")
