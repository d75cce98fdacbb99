"""Decide who may call which route: classes for API_PERMISSION_CLASSES. All of them must agree.

They read ``view.route`` (see ``schema``), which is None for a method that the path does not have. Such a request is
let through and answered 405. ``querysets`` decides which rows a user sees; ``has_object_permission`` decides if the
user may change one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from payments_integration import conf, permissions
from payments_integration.api.errors import refused

if TYPE_CHECKING:  # the checks read this module's classes also without the extra ``api``
    from payments_integration.api.schema import Route


class _ByPermission(BasePermission):
    #: The message of a refusal; None for Django REST framework's own.
    message: str | None = None

    def _staff_may(self, user: Any, view: Any) -> bool:
        """Return True if a member of staff has the route's permission. Otherwise ``message`` names it."""
        if view.route is None or not view.route.permission:
            return True
        try:
            permissions.require(user, view.route.permission)
        except PermissionDenied as error:
            self.message = str(error)
            return False
        return True


class StaffByPermission(_ByPermission):
    """Allow only staff with the route's model permission. The default."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return _is_staff(request.user) and self._staff_may(request.user, view)


class StaffAndCustomers(_ByPermission):
    """Allow staff by model permission, and signed-in users for their own payments, refunds and deposit references.

    A customer creates payments as API_PAYMENT says, sees and cancels them, creates and sees deposit references, and
    sees refunds, payment methods and the operation that their own call led to. Payouts, balances, events and lists of
    operations are for staff. A customer names a ``merchant_reference`` only if API_REFERENCE_CHECK allows it.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        user = request.user
        if not getattr(user, "is_authenticated", False) or not getattr(user, "is_active", False):
            return False
        if _is_staff(user):
            return self._staff_may(user, view)
        return view.route is None or bool(view.route.customers)

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        """Refuse changes to the rows of other users. A project's API_QUERYSET may show such rows."""
        return request.method in SAFE_METHODS or _is_staff(request.user) or bool(getattr(obj, "is_own", False))


def check_change(request: Request, route: Route) -> None:
    """Raise PermissionDenied or Problem (403) if the caller may not make this change, whichever class let them in.

    The services check the permissions of staff only.
    """
    if _is_staff(request.user) or permissions.may(request.user, route.permission):
        return
    if not route.customers:
        permissions.require(request.user, route.permission)
    _check_reference(request)


def _check_reference(request: Request) -> None:
    """Raise Problem (403) if a customer names a merchant reference that API_REFERENCE_CHECK does not allow.

    An order and its status page show the newest payment of their reference. Under somebody else's reference, a
    customer would take over both.
    """
    sent: Any = request.data  # a dict: the parser accepts only objects
    reference = sent.get("merchant_reference")
    if reference is None:
        return
    path = conf.current().API_REFERENCE_CHECK
    # PostgreSQL refuses a NUL character. Require True itself. Other results are truthy too, such as a coroutine.
    is_text = isinstance(reference, str) and "\x00" not in reference
    if not path or not is_text or import_string(path)(request.user, reference) is not True:
        words = _("You may not use this merchant reference.")
        hint = "the option API_REFERENCE_CHECK says who may use which"
        raise refused(words, "merchant_reference", hint=hint)


def _is_staff(user: Any) -> bool:
    return permissions.is_staff(user) and bool(getattr(user, "is_active", False))
