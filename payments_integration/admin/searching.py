"""Finding rows by a term: an id, a reference, a payer. The whole term is meant, and every way of reading it is tried.

The ids of what is found are looked up first, each by an index of its own. One statement with all of it, in the order
of the list, would leave a database the choice to walk the list from its beginning until a page is full.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connections, router
from django.db.models import Model, Q, QuerySet

from payments_integration import conf
from payments_integration.enums import Kind
from payments_integration.models import AccountState, Erasure

#: Ids that are looked up at most.
MOST = 500
#: No field that is searched is longer.
_MAX_TERM = 255
_KINDS = ("", *Kind.values, Erasure.OPERATION)


@dataclass(frozen=True, slots=True)
class Lookup:
    """One way to read a term."""

    rows: Q
    #: By the beginning of an id: it may find any number of rows that nobody meant.
    is_beginning: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, as a filter."""

    rows: Q
    #: More ids begin so than were looked up.
    is_cut: bool = False


def lookup(model: type[Model], name: str, term: str) -> Lookup | None:
    """How ``term`` is looked for by one of ``search_fields``; None where it cannot be meant."""
    if not term or len(term) > _MAX_TERM:
        return None
    field, _separator, how = name.partition("__")
    if how == "startswith":
        wanted = {name: term}
        if connections[router.db_for_write(model)].vendor != "postgresql":
            # Others need telling where in their index to look.
            wanted |= {f"{field}__gte": term, f"{field}__lt": f"{term}\uffff"}
        return Lookup(Q(**wanted), is_beginning=True)
    if field != "object_id":
        return Lookup(Q(**{name: term}))
    # The index of what belongs to an object begins with its account and kind.
    return Lookup(Q(**{name: term}, account__in=_accounts(), object_kind__in=_KINDS))


def find(model: type[Model], lookups: Iterable[Lookup]) -> Found:
    """The rows that one of these finds."""
    known = list(lookups)
    rows: QuerySet[Any] = model._default_manager.order_by().values_list("pk", flat=True)
    keys: dict[Any, None] = {}
    wanted, is_cut = Q(pk__in=()), False
    if exact := [found.rows for found in known if not found.is_beginning]:
        either = functools.reduce(operator.or_, exact)
        found = list(rows.filter(either)[: MOST + 1])
        if len(found) > MOST:
            # So many are met soon on any way to them.
            wanted = either
        else:
            keys |= dict.fromkeys(found)
    for beginning in (found.rows for found in known if found.is_beginning):
        found = list(rows.filter(beginning).order_by("pk")[: MOST + 1])
        keys |= dict.fromkeys(found[:MOST])
        is_cut |= len(found) > MOST
    return Found(wanted | Q(pk__in=list(keys)), is_cut)


def _accounts() -> list[str]:
    """Those of the settings, and those that once were among them."""
    return sorted({*conf.aliases(), *AccountState.objects.values_list("pk", flat=True)})
