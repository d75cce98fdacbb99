"""Notes are added once, stay as they were written, and are written only about what an erasure reaches."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.utils import timezone

from payments_integration.contrib.backoffice import notes
from payments_integration.contrib.backoffice.models import Note
from payments_integration.models import Payment
from tests.factories import rows

pytestmark = pytest.mark.django_db


def user(*codenames: str) -> User:
    made = User.objects.create_user(f"user-{User.objects.count()}", is_staff=True)
    made.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return made


@pytest.mark.parametrize("make", [rows.payment, rows.payout, rows.refund, rows.deposit_reference])
def test_a_note_names_its_object_author_and_time(make: Any) -> None:
    ana, obj, before = user("add_note"), make(), timezone.now()
    note = notes.add(obj, " Called the bank.\r\nThey look into it. ", author=ana)
    stored = Note.objects.get()
    assert stored == note
    assert (stored.account, stored.object_kind, stored.object_id) == (obj.account, obj.kind, obj.pk)
    assert stored.text == "Called the bank.\nThey look into it."
    assert stored.author == f"{ana.pk}:{ana.username}"
    assert before <= stored.created_at <= timezone.now()


def test_the_same_form_adds_one_note_and_another_text_of_it_another() -> None:
    obj = rows.payment()
    first = notes.add(obj, "Called.", author="desk", key="k")
    assert notes.add(obj, "Called.", author="desk", key="k") == first
    # After the browser's way back, with more words.
    notes.add(obj, "Called again.", author="desk", key="k")
    # The same words of another page, about another object, or of another person.
    notes.add(obj, "Called.", author="desk", key="k2")
    notes.add(rows.payout(), "Called.", author="desk", key="k")
    notes.add(obj, "Called.", author="office", key="k")
    notes.add(obj, "Called.", author="desk")
    notes.add(obj, "Called.", author="desk")
    assert Note.objects.count() == 7


@pytest.mark.parametrize("text", ["", "  \n ", "x" * (notes.MAX_LENGTH + 1), "a\x00b"])
def test_a_text_that_is_blank_too_long_or_cannot_be_stored_is_refused(text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        notes.add(rows.payment(), text, author="desk")
    assert [*caught.value.message_dict] == ["text"]
    assert not Note.objects.exists()


def test_a_line_break_counts_as_one_character() -> None:
    text = "a\r\n" * (notes.MAX_LENGTH // 2 - 1) + "ab"
    assert len(notes.add(rows.payment(), text, author="desk").text) == notes.MAX_LENGTH


def test_staff_need_the_permission() -> None:
    obj = rows.payment()
    with pytest.raises(PermissionDenied):
        notes.add(obj, "x", author=user("view_note", "change_note", "view_personal_data"))
    assert not Note.objects.exists()


def test_an_erased_object_takes_no_note() -> None:
    obj = rows.payment()
    Payment.objects.update(erased_at=timezone.now())  # since the page was opened
    with pytest.raises(ValidationError, match="erased"):
        notes.add(obj, "x", author="desk")
    assert not Note.objects.exists()


@pytest.mark.parametrize("make", [rows.balance, rows.endpoint])
def test_objects_that_are_never_erased_take_no_notes(make: Any) -> None:
    with pytest.raises(TypeError, match="takes no notes"):
        notes.add(make(), "x", author="desk")


def test_a_note_is_neither_changed_nor_deleted() -> None:
    note = notes.add(rows.payment(), "as it was", author="desk")
    note.text = "as it was not"
    for attempt in (
        note.save,
        lambda: note.save(update_fields=["text"]),
        Note.objects.get().save,
        note.delete,
        lambda: Note.objects.update_or_create(pk=note.pk, defaults={"text": "as it was not"}),
    ):
        with pytest.raises(TypeError, match="A note is never"):
            attempt()
    assert Note.objects.get().text == "as it was"


def test_its_text_is_not_in_its_name() -> None:
    assert "secret" not in f"{notes.add(rows.payment(), 'a secret', author='desk')!r}"
