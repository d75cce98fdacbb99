"""Who may do what: Django's permissions, asked for where the work is done, not only on the pages that lead there.

A member of staff who comes through the admin acts by own right and is checked. A job (text) and a customer (a user who
is not staff) act through code of the merchant's, which has decided for them.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.utils.translation import gettext as _

APP = "payments_integration"


def may(user: Any, codename: str, obj: Any = None) -> bool:
    """Whether the user has one of the app's permissions, for all rows or for this one."""
    has_perm = getattr(user, "has_perm", None)
    if has_perm is None:
        return False
    name = f"{APP}.{codename}"
    return bool(has_perm(name) or (obj is not None and has_perm(name, obj)))


def require(user: Any, codename: str, obj: Any = None) -> None:
    """Raise PermissionDenied unless the user may."""
    if not may(user, codename, obj):
        words = _("This needs the permission %(permission)s.") % {"permission": f"{APP}.{codename}"}
        raise PermissionDenied(words)


def is_staff(actor: object) -> bool:
    """Whether it is a user of the admin: the only actors whose rights are checked here."""
    return bool(getattr(actor, "is_staff", False))


def require_of_staff(actor: object, codename: str, obj: Any = None) -> None:
    """Raise PermissionDenied where the actor is a member of staff who may not."""
    if is_staff(actor):
        require(actor, codename, obj)
