"""Add the internal notes that staff write about a payment, payout, refund or deposit reference."""

from __future__ import annotations

import hashlib
import uuid

from django.core.exceptions import ValidationError
from django.db import router
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from payments_integration import permissions
from payments_integration.contrib.backoffice.apps import LABEL
from payments_integration.contrib.backoffice.models import Note
from payments_integration.db.transactions import locked, repeatable
from payments_integration.models import Mirror
from payments_integration.validation.validator import Validator

MAX_LENGTH = 2000
#: The permission to add a note.
ADD = f"{LABEL}.add_note"


@sensitive_variables()  # here and below: a note may hold personal data
def add(obj: Mirror, text: str, *, author: object, key: str | None = None) -> Note:
    """Add a note of staff to a mirrored object.

    Args:
        obj: A payment, payout, refund or deposit reference.
        text: At most 2000 characters.
        author: A user or text. Staff need ``payments_backoffice.add_note``.
        key: The form's key. The same text sent again with it is the same note. Another text is another note.

    Returns:
        The note.

    Raises:
        ValidationError: The text is blank or too long, or the object's personal data was erased.
        PermissionDenied: The author is staff and may not.
        TypeError: Such an object takes no notes.
    """
    if not obj.personal:
        raise TypeError(f"a {obj.kind} takes no notes")  # an erasure would not find them
    permissions.require_of_staff(author, ADD, obj)
    validator = Validator()
    # A browser counts a line break as one character, and sends two.
    text = validator.text("text", text.replace("\r\n", "\n").strip(), max_length=MAX_LENGTH, required=True)
    name = validator.actor("author", author)
    validator.finish()
    parts = [key or uuid.uuid4().hex, obj.account, obj.kind, obj.object_id, name, text]
    unique = hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def write() -> Note:
        # Take the lock that an erasure takes too: the note is written before the erasure, or refused after it.
        current = locked(type(obj)._default_manager.filter(pk=obj.pk, account=obj.account)).get()
        if current.erased_at is not None:
            raise ValidationError({"text": [_("Its personal data was erased, so no notes can be added.")]})
        known = Note.objects.filter(key=unique).first()
        return known or Note.objects.create(
            account=obj.account,
            object_kind=obj.kind,
            object_id=obj.object_id,
            text=text,
            author=name,
            key=unique,
        )

    return repeatable(write, using=router.db_for_write(Note))
