"""What a browser may do: anyone with an order's address sees it, and the browser that created it may change it.

There is no login here. A shop with a login checks the order's owner instead.
"""

from __future__ import annotations

from datetime import timedelta

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils import timezone

from example_project.shop.models import DepositAccount, Order

#: A payer who comes back has probably paid, so the page waits this long before it asks for the money again.
WAIT_FOR_MONEY = timedelta(seconds=30)
REMEMBERED = 20


def remember(request: HttpRequest, thing: Order | DepositAccount) -> None:
    name = _list_of(thing)
    known = [reference for reference in request.session.get(name, []) if reference != thing.reference]
    request.session[name] = [thing.reference, *known][:REMEMBERED]


def remembered(request: HttpRequest, model: type[Order] | type[DepositAccount]) -> list[str]:
    """References of the orders or accounts created in this browser, newest first."""
    found: list[str] = request.session.get(_list_of(model), [])
    return found


def is_mine(request: HttpRequest, thing: Order | DepositAccount) -> bool:
    return thing.reference in remembered(request, type(thing))


def only_mine(request: HttpRequest, thing: Order | DepositAccount) -> None:
    """Raises PermissionDenied in another browser."""
    if not is_mine(request, thing):
        raise PermissionDenied


def note_return(request: HttpRequest, order: Order) -> None:
    """The payer came back from paying this order just now."""
    request.session["returned"] = [order.reference, timezone.now().timestamp()]


def has_returned(request: HttpRequest, order: Order) -> bool:
    """Whether the payer came back from paying it a moment ago."""
    reference, at = request.session.get("returned", ["", 0.0])
    age = timezone.now().timestamp() - at
    return bool(reference == order.reference and age < WAIT_FOR_MONEY.total_seconds())


def _list_of(thing: object) -> str:
    kind = thing if isinstance(thing, type) else type(thing)
    return "orders" if kind is Order else "accounts"
