"""Let people handle the to-do list: mark things as done with a note, snooze them, assign them, or put them back."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import router
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from payments_integration import caching, conf, permissions
from payments_integration.attention import call_attention
from payments_integration.contrib.backoffice import comparison, todo
from payments_integration.contrib.backoffice.apps import LABEL
from payments_integration.contrib.backoffice.models import Todo
from payments_integration.contrib.backoffice.todo import SHOWN, Kind, Thing
from payments_integration.db.transactions import locked, repeatable
from payments_integration.models import MIRRORS, Erasure, Operation, Payment
from payments_integration.projection import is_history, ours
from payments_integration.signals import Reason
from payments_integration.validation.validator import Validator

MAX_LENGTH = 2000
#: The permission to change anything here.
HANDLE = f"{LABEL}.handle_todo"
#: The numbers of days for which a thing can be snoozed.
SNOOZES = (1, 3, 7)
#: A snooze that ends this close to the present one is the same click.
_DOUBLE_CLICK = timedelta(minutes=1)
#: The time between two comparisons of an account's orders, for processes that share Django's cache.
COMPARE_EVERY = timedelta(minutes=15)
#: Payments that were created in this time are compared.
COMPARED = timedelta(days=30)


class AlreadyDone(Exception):
    """The thing is already done. ``by`` is the person who did it, as in ``Operation.actor``."""

    def __init__(self, by: str) -> None:
        super().__init__(_("%(person)s has already done this.") % {"person": permissions.actor_name(by)})
        self.by = by


@sensitive_variables()  # here and below: a note may hold personal data
def done(thing: Thing, note: str, *, author: object) -> Todo:
    """Take a thing off the list, with a note that says what was done.

    The same note sent again by the same author is the same call. If the payer's personal data was erased, the note
    is not stored.

    Raises:
        ValidationError: ``note`` is blank or too long, or only a decision ends the ``thing``.
        PermissionDenied: The author is staff and may not.
        AlreadyDone: Another person was faster, or it is done with another note.
    """
    name = _author(author)
    if not thing.is_done_by_note:
        raise ValidationError({"thing": [_("This ends when it is decided. A note cannot end it.")]})
    validator = Validator()
    text = validator.text("note", note.strip(), max_length=MAX_LENGTH, required=True)
    validator.finish()

    def write() -> Todo:
        kept = "" if _is_erased(thing) else text
        mark = _mark(thing)
        if mark.done_at is not None:
            if (mark.done_by, mark.note) == (name, kept):
                mark.is_changed = False
                return mark
            raise AlreadyDone(mark.done_by)
        mark.done_at, mark.done_by, mark.note = timezone.now(), name, kept
        mark.save()
        return mark

    return repeatable(write, using=router.db_for_write(Todo))


def snooze(thing: Thing, days: int, *, author: object) -> Todo:
    """Hide a thing for a number of days from ``SNOOZES``; 0 shows it again.

    Raises ValidationError for another number, PermissionDenied like ``done``, and AlreadyDone if it is done.
    """
    _author(author)
    if days and days not in SNOOZES:
        raise ValidationError({"days": [_("Choose one of the periods.")]})

    def change(mark: Todo) -> None:
        until = timezone.now() + timedelta(days=days) if days else None
        if until and mark.snoozed_until and abs(until - mark.snoozed_until) < _DOUBLE_CLICK:
            return
        mark.snoozed_until = until

    return _change(thing, change)


def assign(thing: Thing, person: Any | None, *, author: object) -> Todo:
    """Assign a thing to a member of staff who may handle it. None removes the assignment.

    Raises ValidationError if that person may not handle it, PermissionDenied like ``done``, and AlreadyDone if it is
    done.
    """
    _author(author)
    if person is not None and not (person.is_active and person.is_staff and permissions.may(person, HANDLE)):
        raise ValidationError({"assignee": [_("This person may not handle what is to be done.")]})
    name = Validator().actor("assignee", person)

    def change(mark: Todo) -> None:
        mark.assignee, mark.assignee_name = permissions.user_id(person), name

    return _change(thing, change)


def gone(assignees: Collection[str]) -> set[str]:
    """Return the assignees who were deleted or can no longer use the admin. Takes one statement, if any."""
    model: Any = get_user_model()
    # A long key is stored as its hash, which finds no user.
    asked = {each for each in assignees if len(each) < permissions.MAX_USER_ID}
    keys = set()
    for each in asked:
        with suppress(ValidationError):  # a key of the user model that the project had before
            keys.add(model._meta.pk.to_python(each))
    users = model._default_manager.filter(pk__in=keys) if keys else ()
    return asked - {permissions.user_id(user) for user in users if user.is_active and user.is_staff}


def put_back(mark: Todo, *, author: object) -> None:
    """Put a done thing back on the list. Its note is kept until it is done again. Raises PermissionDenied."""
    _author(author)

    def write() -> None:
        mark.is_changed = locked(Todo.objects.filter(pk=mark.pk)).get().done_at is not None
        Todo.objects.filter(pk=mark.pk).update(done_at=None)

    repeatable(write, using=router.db_for_write(Todo))


def report_unpaid() -> None:
    """Call attention, once, to each payment whose order is not marked as paid."""
    for account in conf.aliases():
        if not comparison.compared_models(account):
            continue
        # Without a working cache, each pass compares.
        if caching.is_first(caching.key("compared", account), COMPARE_EVERY.total_seconds()) is not False:
            for thing in _unreported(account)[:SHOWN]:
                repeatable(partial(_report, thing), using=router.db_for_write(Todo))


def _unreported(account: str) -> list[Thing]:
    """Return what no row is about, without history: no handler was called for it."""
    paid = comparison.newest_paid(account, timezone.now() - COMPARED)
    things = todo.unpaid_of(account, paid, comparison.orders_of(account, comparison.compared_models(account), paid))
    old = [thing.object_id for thing in things if is_history(account, thing.since)]
    ids = [thing.object_id for thing in things]
    known = Todo.objects.filter(account=account, kind=Kind.UNPAID, thing__in=ids).values_list("thing", flat=True)
    left_out = {*known} | ({*old} - ours(account, old))
    return [thing for thing in things if thing.object_id not in left_out]


def _report(thing: Thing) -> None:
    """Call attention, and save a row that says so. A row that exists says that a person knows."""
    mark = _mark(thing)
    if not mark._state.adding:
        return
    mark.save()
    message = f"{thing.object_id} succeeded, and its order {thing.found.reference} is not marked as paid"
    call_attention(Payment(pk=thing.object_id, account=thing.account), Reason.ORDER_UNPAID, message)


def _author(author: object) -> str:
    permissions.require_of_staff(author, HANDLE)
    validator = Validator()
    name = validator.actor("author", author)
    validator.finish()
    if not name:
        raise PermissionDenied
    return name


def _change(thing: Thing, change: Callable[[Todo], None]) -> Todo:
    def write() -> Todo:
        mark = _mark(thing)
        if mark.done_at is not None:
            raise AlreadyDone(mark.done_by)
        before = (mark.assignee, mark.assignee_name, mark.snoozed_until)
        change(mark)
        mark.is_changed = (mark.assignee, mark.assignee_name, mark.snoozed_until) != before
        if mark.is_changed:
            mark.save()
        return mark

    return repeatable(write, using=router.db_for_write(Todo))


def _mark(thing: Thing) -> Todo:
    """Return the locked row of a thing, or an unsaved one.

    If two transactions save one at once, the second fails, and ``repeatable`` runs it again with the saved row.
    """
    known = Todo.objects.filter(account=thing.account, kind=thing.kind.value, thing=thing.found.thing)
    mark = locked(known.filter(since__gte=thing.since).order_by("-since")).first()
    return mark or Todo(
        account=thing.account,
        object_kind=thing.object_kind,
        object_id=thing.object_id,
        kind=thing.kind.value,
        thing=thing.found.thing,
        since=thing.since,
    )


def _is_erased(thing: Thing) -> bool:
    """Return True if the object's personal data was erased. Takes the lock of an erasure, so no note follows one."""
    if thing.object_kind == Erasure.OPERATION:
        operation = locked(Operation.objects.filter(pk=thing.object_id)).first()
        return operation is not None and operation.body is None
    model = MIRRORS.get(thing.object_kind)
    if model is None:
        return False
    current = locked(model._default_manager.filter(pk=thing.object_id, account=thing.account)).first()
    return current is not None and current.erased_at is not None
