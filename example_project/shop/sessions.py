"""What a browser may do: anyone with an order's address sees it, and the browser that created it may change it.

There is no login here. A shop with a login checks the order's owner instead.
"""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils.translation import gettext as _

from example_project.shop.models import DepositAccount, Order

REMEMBERED = 20
_LISTS = {Order: "orders", DepositAccount: "accounts"}


def remember(request: HttpRequest, thing: Order | DepositAccount) -> None:
    known = [reference for reference in remembered(request, type(thing)) if reference != thing.reference]
    request.session[_LISTS[type(thing)]] = [thing.reference, *known][:REMEMBERED]


def remembered(request: HttpRequest, model: type[Order] | type[DepositAccount]) -> list[str]:
    """References of the orders or accounts created in this browser, newest first."""
    return list(request.session.get(_LISTS[model], []))


def is_mine(request: HttpRequest, thing: Order | DepositAccount) -> bool:
    return thing.reference in remembered(request, type(thing))


def only_mine(request: HttpRequest, thing: Order | DepositAccount) -> None:
    """Raises PermissionDenied in another browser."""
    if not is_mine(request, thing):
        raise PermissionDenied(_("An order can be changed only in the browser that it was made in."))
