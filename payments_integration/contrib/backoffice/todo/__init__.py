"""Compute the to-do list from the state of the tables. Nothing is written when something happens.

A thing leaves the list when it is paid or refunded again, decided or matched. ``models.Todo`` holds what people add,
such as "done"; ``handling`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from payments_integration.contrib.backoffice.todo.mirrored import (
    again_key as again_key,
    later_payouts as later_payouts,
    mirrored_rows,
    open_payout_operations as open_payout_operations,
)
from payments_integration.contrib.backoffice.todo.orders import (
    differences_of as differences_of,
    marked,
    paid_twice,
    unpaid_of as unpaid_of,
    with_people,
)
from payments_integration.contrib.backoffice.todo.rows import (
    INFORMATIVE as INFORMATIVE,
    MODELS as MODELS,
    OF_ORDERS as OF_ORDERS,
    SHOWN as SHOWN,
    Asked as Asked,
    Found as Found,
    Kind as Kind,
    Thing as Thing,
    View as View,
)
from payments_integration.enums import kind_of
from payments_integration.models import MIRRORS, Erasure


def things(asked: Asked, differences: Iterable[Thing]) -> list[Thing]:
    """Return the oldest ``SHOWN`` things and one more, oldest first. ``differences`` are from ``differences_of``."""
    read = mirrored_rows(asked)
    found = [Thing(asked.account, row, *_object_of(row)) for row in read if row.kind != Kind.PAID_TWICE]
    twice = [row for row in read if row.kind == Kind.PAID_TWICE]
    orders = [each for each in (*paid_twice(asked, twice), *differences) if _is_asked(asked, each)]
    found += with_people(marked(asked, sorted(orders, key=_age)))
    return sorted(found, key=_age)[: SHOWN + 1]


def _object_of(row: Found) -> tuple[str, str]:
    """Return kind and id of the object by which an erasure finds the note; an operation's is its target, if any."""
    kind = getattr(MODELS[Kind(row.kind)], "kind", "")
    if kind:
        return kind, row.thing
    target = kind_of(row.about)
    return (target.value, row.about) if target in MIRRORS else (Erasure.OPERATION, row.thing)


def _age(thing: Thing) -> tuple[bool, datetime, str]:
    return thing.found.since is None, thing.since, thing.found.thing


def _is_asked(asked: Asked, thing: Thing) -> bool:
    if thing.kind not in asked.kinds or asked.thing not in (None, thing.found.thing):
        return False
    return thing.kind != Kind.WITHOUT_PAYMENT or (thing.order is not None and thing.order.model in asked.order_models)
