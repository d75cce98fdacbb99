"""Who may call which route: classes for API_PERMISSION_CLASSES, all of which must agree.

They read ``view.route`` (see ``schema``), which is None for a method that the path does not have: such a request is
let through and answered 405. ``view.may(codename)`` tells whether the caller has a permission. ``querysets`` decides
which rows a user sees; ``has_object_permission`` decides whether the user may change one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Permission, PermissionsMixin
from django.db.models import Q
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from payments_integration import conf, permissions
from payments_integration.api.errors import PERMISSION, Problem

#: The backend whose decisions can be read in one statement.
_DJANGOS_OWN = ["django.contrib.auth.backends.ModelBackend"]


class StaffByPermission(BasePermission):
    """Staff with the route's model permission, and no other users. The default."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return _is_staff(request.user) and _staff_may(view)


class StaffAndCustomers(BasePermission):
    """Staff by model permission, and all signed-in users for their own payments, refunds and deposit references.

    A customer creates, sees and cancels payments, creates and sees deposit references, and sees refunds, payment
    methods and the operation that their own call led to. Payouts, balances, events and lists of operations are for
    staff. A customer names a ``merchant_reference`` only if API_REFERENCE_CHECK allows it.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        user = request.user
        if not getattr(user, "is_authenticated", False) or not getattr(user, "is_active", False):
            return False
        if _is_staff(user):
            return _staff_may(view)
        if view.route is None or not view.route.customers:
            return view.route is None
        if request.method not in SAFE_METHODS:
            _check_reference(request)
        return True

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        """A project's API_QUERYSET may show a user the rows of others; the user cannot change those."""
        return request.method in SAFE_METHODS or _is_staff(request.user) or bool(getattr(obj, "is_own", False))


def _check_reference(request: Request) -> None:
    """Raise Problem (403) if a customer names a merchant reference that API_REFERENCE_CHECK does not allow.

    The newest payment of a reference is the one that its order and its status page show. Under somebody else's
    reference a customer would take both over.
    """
    sent: Any = request.data  # a dict: the parser accepts only objects
    reference = sent.get("merchant_reference")
    if reference is None:
        return
    path = conf.current().API_REFERENCE_CHECK
    # Only True allows it: a coroutine, for one, is true as well.
    if not path or not isinstance(reference, str) or import_string(path)(request.user, reference) is not True:
        words = _("You may not use this merchant reference. The option API_REFERENCE_CHECK decides who may use which.")
        raise Problem(403, PERMISSION, "permission_denied", words, "merchant_reference")


def held_by(user: Any) -> Callable[[str], bool]:
    """A function that tells whether the user has one of the app's permissions, for a request that asks repeatedly.

    If Django's own backend alone decides, one statement reads them all. Otherwise (another backend, or a user model
    with a ``has_perm`` of its own) each question is asked as ``permissions.may`` does.
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


def _is_staff(user: Any) -> bool:
    return permissions.is_staff(user) and bool(getattr(user, "is_active", False))


def _staff_may(view: Any) -> bool:
    return view.route is None or not view.route.permission or view.may(view.route.permission)
