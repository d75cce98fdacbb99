"""Check who may do what: Django's permissions, where the work is done as well as on the pages.

Staff act in their own right and are checked. Jobs (text) and customers (users who are not staff) act through the
merchant's code, which has decided for them.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.utils.translation import gettext as _

APP = "payments_integration"
#: The length of a SHA-256 in hex, and of ``Operation.actor_id``.
MAX_USER_ID = 64
#: How ``Validator.actor`` begins the text for a user: a number or a UUID.
_USER_ID = r"(?:[0-9]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(?=\S)"
#: The beginning of an entry of ``Operation.note`` that a user made.
_ENTRY = rf"(?m)^([0-9]{{4}}-[0-9-]+ [0-9:]+(?: \w+)?: ){_USER_ID}"


def may(user: Any, codename: str, obj: Any = None) -> bool:
    """Return True if the user has a permission, for all rows or this one. Another app's is ``label.codename``."""
    has_perm = getattr(user, "has_perm", None)
    if has_perm is None:
        return False
    name = _full(codename)
    return bool(has_perm(name) or (obj is not None and has_perm(name, obj)))


def _full(codename: str) -> str:
    return codename if "." in codename else f"{APP}.{codename}"


def require(user: Any, codename: str, obj: Any = None) -> None:
    """Raise PermissionDenied unless the user may."""
    if not may(user, codename, obj):
        words = _("This needs the permission %(permission)s.") % {"permission": _full(codename)}
        raise PermissionDenied(words)


def is_staff(actor: object) -> bool:
    """Return True for a user of the admin: the only actors whose rights are checked here."""
    return bool(getattr(actor, "is_staff", False))


def is_borrowed(actor: object) -> bool:
    """Return True if somebody else acts in this user's session, as django-hijack and django-impersonate mark it."""
    return bool(getattr(actor, "is_hijacked", False) or getattr(actor, "is_impersonate", False))


def require_of_staff(actor: object, codename: str, obj: Any = None) -> None:
    """Raise PermissionDenied if the actor is a member of staff who may not."""
    if is_staff(actor):
        require(actor, codename, obj)


def user_id(actor: object) -> str:
    """Return a user's primary key as text, which stays when the name changes; "" for text and for None.

    The key of another model than AUTH_USER_MODEL begins with the model, because two tables may use the same numbers.
    An object that is no model, such as the user of a token, stands for the user with its key.
    """
    pk = getattr(actor, "pk", None)
    if pk is None or pk == "":
        return ""
    text = f"{_kind(actor)}{pk}"
    # Two long keys may begin alike. They are stored as hashes, which are as long as the column.
    return text if len(text) < MAX_USER_ID else hashlib.sha256(text.encode()).hexdigest()


def _kind(actor: object) -> str:
    """Return ``app.model:`` of a model; "" for AUTH_USER_MODEL and for what is no model."""
    # A middleware's lazy object tells its user's class only as an attribute.
    options = getattr(actor.__class__, "_meta", None)
    if options is None:
        return ""
    options, user_model = options.concrete_model._meta, settings.AUTH_USER_MODEL.lower()
    # A child of another model has the parent's key.
    while options.label_lower != user_model and getattr(options.pk.remote_field, "parent_link", False):
        options = options.pk.remote_field.model._meta
    return "" if options.label_lower == user_model else f"{options.label_lower}:"


def name_of(user: object) -> str:
    """Return the username of a user, or the text of a customer who has none."""
    get_username = getattr(user, "get_username", None)
    return str(user if get_username is None else get_username())


def actor_name(actor: str) -> str:
    """Return a stored actor as people know it: ``ana`` for ``2:ana``; text unchanged."""
    return re.sub(rf"\A{_USER_ID}", "", actor)


def with_names(note: str) -> str:
    """Return an operation's note with its actors as people know them."""
    return re.sub(_ENTRY, r"\1", note)
