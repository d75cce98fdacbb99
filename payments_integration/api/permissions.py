"""Who may call what: classes for API_PERMISSION_CLASSES. All of those that are named must agree.

They read ``view.call`` (see ``calls``), which is None for a method that the address does not have: such a request is
let through to be answered 405. ``view.may(codename)`` tells what the caller may. Which rows there are for somebody is
not decided here, but in ``querysets``; whether one of them may be changed, ``has_object_permission`` says.
"""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from payments_integration import permissions


class StaffByPermission(BasePermission):
    """Members of staff who have the model permission of the call; nobody else. The default."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return _is_staff(request.user) and _staff_may(view)


class StaffAndCustomers(BasePermission):
    """Staff by model permission; and everybody who is signed in, for own payments, refunds and deposit references.

    A customer makes, sees and cancels payments, makes and sees deposit references, sees refunds, payment methods and
    the operation that a call of theirs has led to. Payouts, balances, events and lists of operations are for staff.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        user = request.user
        if not getattr(user, "is_authenticated", False) or not getattr(user, "is_active", False):
            return False
        if _is_staff(user):
            return _staff_may(view)
        return view.call is None or bool(view.call.customers)

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        """A project's API_QUERYSET may show somebody more than their own; to see it is not to change it."""
        return request.method in SAFE_METHODS or _is_staff(request.user) or bool(getattr(obj, "is_own", False))


def _is_staff(user: Any) -> bool:
    return permissions.is_staff(user) and bool(getattr(user, "is_active", False))


def _staff_may(view: Any) -> bool:
    return view.call is None or not view.call.needs or view.may(view.call.needs)
