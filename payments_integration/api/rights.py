"""What somebody may, for a request that asks more than once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Permission, PermissionsMixin
from django.db.models import Q

from payments_integration import permissions

#: Whose decisions can be read at once.
_DJANGOS_OWN = ["django.contrib.auth.backends.ModelBackend"]


def rights(user: Any) -> Callable[[str], bool]:
    """What ``permissions.may`` says of the user.

    Where Django's own backend alone decides it is read in one statement, in place of one for the user's permissions
    and one for the groups'; any other backend, and a user model that decides by itself, is asked each time.
    """
    if not _decided_by_rows(user):
        return lambda codename: permissions.may(user, codename)
    of_groups = Permission.objects.filter(group__in=user.groups.all())
    held = frozenset(
        Permission.objects.filter(
            Q(pk__in=user.user_permissions.values("pk")) | Q(pk__in=of_groups.values("pk")),
            content_type__app_label=permissions.APP,
        ).values_list("codename", flat=True)
    )
    return held.__contains__


def _decided_by_rows(user: Any) -> bool:
    return (
        list(settings.AUTHENTICATION_BACKENDS) == _DJANGOS_OWN
        # Not type(): a request's user is a lazy object.
        and getattr(user.__class__, "has_perm", None) is PermissionsMixin.has_perm
        and user.is_active
        and not user.is_superuser
    )
