"""Filter and search the lists. Every filter and search reads through an index.

The filters' choices are the known values, so no list needs a DISTINCT over its table. A search tries the whole typed
text with every lookup. It looks up the ids of matching rows first, because with one query for everything, a database
could scan the list in its order until a page is full.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db import connections, router
from django.db.models import Model, Q, QuerySet, Subquery
from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.enums import Country, Currency, Kind, MethodFamily
from payments_integration.models import AccountState, Erasure, Refund
from payments_integration.validation.text import StrOrPromise

#: Selects every value that this version does not know.
OTHER = "~other"
#: The query parameter of ``Refunded``.
REFUNDED = "refunded"
#: Separates several values of one filter, as in links of the overview.
SEPARATOR = ","
#: The maximum of consecutive unknown values that are looked up after a known one.
_ROUNDS = 6
#: The maximum of ids that a search looks up.
MAX_IDS = 500
#: The length of the longest searched field.
_MAX_TERM = 255
#: Django's short forms in ``search_fields``.
_DJANGOS = {"^": "startswith", "=": "exact"}
_KINDS = ("", *Kind.values, Erasure.OPERATION)

Choices = list[tuple[str, StrOrPromise]]


class KnownValues(admin.SimpleListFilter):
    """Filters by one of the known values of a field, or by all others."""

    values: Callable[[], Choices]
    #: True if the provider may send values that this version does not know.
    open_ended = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, StrOrPromise]]:
        found = type(self).values()
        return [*found, (OTHER, _("other"))] if found and self.open_ended else found

    def has_output(self) -> bool:
        # A link may filter although there is no choice: by a removed account, where one is left.
        return super().has_output() or self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        field = str(self.parameter_name)
        if value == OTHER:
            keys = [key for key, _label in type(self).values()]
            return queryset.filter(**{f"{field}__in": others(queryset.model, field, keys)})
        if "\x00" in value:
            raise IncorrectLookupParameters
        if SEPARATOR in value:
            return queryset.filter(**{f"{field}__in": value.split(SEPARATOR)})
        return queryset.filter(**{field: value})


def others(model: type[Model], field: str, known: Iterable[str]) -> list[str]:
    """Return the unknown values of a field, found with a few steps through the field's index.

    ``NOT IN`` would read the whole table for rare values. Instead, one query asks for the next value after each known
    one. It is repeated from the unknown values that it finds.
    """
    rows = model._default_manager.order_by()
    # MariaDB and MySQL ignore case, so values that differ only in case are the same.
    normalize = str.casefold if connections[router.db_for_write(model)].vendor == "mysql" else str
    known = list(known)
    found: dict[str, None] = dict.fromkeys(map(normalize, known))
    steps = [rows.order_by(field), *(rows.filter(**{f"{field}__gt": value}).order_by(field) for value in known)]
    unknown: list[str] = []
    for _round in range(_ROUNDS):
        columns = {f"step_{number}": Subquery(step.values(field)[:1]) for number, step in enumerate(steps)}
        values = rows.annotate(**columns).values_list(*columns)[:1]
        new = {normalize(value): value for row in values for value in row if value is not None}
        new = {key: value for key, value in new.items() if key not in found}
        if not new:
            break
        unknown += new.values()
        found |= dict.fromkeys(new)
        steps = [rows.filter(**{f"{field}__gt": value}).order_by(field) for value in new.values()]
    return unknown


def known(
    field: str, title: StrOrPromise, values: Callable[[], Choices] | Any, *, open_ended: bool = True
) -> type[KnownValues]:
    """Return a filter on ``field``. ``values`` is an enumeration, or a function that returns the choices."""
    choices = (lambda: list(values.choices)) if hasattr(values, "choices") else values
    made = type(
        f"{field.title().replace('_', '')}Filter",
        (KnownValues,),
        {"title": title, "parameter_name": field, "values": staticmethod(choices), "open_ended": open_ended},
    )
    return cast("type[KnownValues]", made)


def _accounts() -> Choices:
    choices: Choices = [*conf.account_choices()]
    # With one account there is no choice.
    return choices if len(choices) > 1 else []


ACCOUNT = known("account", _("account"), _accounts)
COUNTRY = known("country", _("country"), Country)
CURRENCY = known("currency", _("currency"), Currency)
FAMILY = known("method_family", _("method family"), MethodFamily)


class Refunded(KnownValues):
    """Filters payments that were refunded, in part or in full."""

    title = _("refunded")
    parameter_name = REFUNDED
    open_ended = False

    @staticmethod
    def values() -> Choices:
        return [("yes", _("in part or in full"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return refunded(queryset) if self.value() else queryset


def refunded(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the refunded payments. They are found through their refunds, because the amount has no index."""
    refunds = Refund.objects.order_by().exclude(payment_id=None).values("payment_id")
    return rows.filter(refunded_amount__gt=0, pk__in=refunds)


def parameters(list_filter: Iterable[Any], given: Iterable[str] = ()) -> set[str]:
    """Return the query parameters of a list's filters. Of ``given``, it returns what a project's own filters read."""
    names: set[str] = set()
    for item in list_filter:
        if isinstance(item, str):
            # Django's filter on a time field, or on another one.
            names |= {f"{item}__gte", f"{item}__lt"}
            names |= {item, f"{item}__exact", f"{item}__isnull"}.intersection(given)
        elif isinstance(item, tuple | list):
            # A field with a class, as with django-admin-rangefilter.
            names |= {name for name in given if name == item[0] or name.startswith(f"{item[0]}__")}
        else:
            names |= item.parameters() if hasattr(item, "parameters") else {str(item.parameter_name)}
    return names


def without_lookups(given: QueryDict, list_filter: Iterable[Any]) -> QueryDict | None:
    """Return the parameters with ``status`` in place of ``status__exact`` and ``status__in``, Django's own names.

    Returns None if there is nothing to rename.
    """
    known, renamed = parameters(list_filter), given.copy()
    for name in given:
        plain, _separator, how = name.partition("__")
        if how in ("exact", "in") and plain in known and plain not in given:
            renamed.setlist(plain, renamed.pop(name))
    return renamed if renamed != given else None


class Lookup(NamedTuple):
    """One way to look up a term."""

    rows: Q
    #: True if the term is the beginning of an id, which may match any number of rows.
    is_prefix: bool = False


class Found(NamedTuple):
    """The result of a search, as a filter."""

    rows: Q
    #: True if some matching rows were left out.
    is_cut: bool = False


def lookup(model: type[Model], name: str, term: str) -> Lookup | None:
    """Return the lookup of ``term`` by one of ``search_fields``; None if no value can match."""
    if not term or len(term) > _MAX_TERM:
        return None
    if how := _DJANGOS.get(name[:1]):
        name = f"{name[1:]}__{how}"
    field, _separator, how = name.partition("__")
    if how == "startswith":
        wanted = {name: term}
        if connections[router.db_for_write(model)].vendor != "postgresql":
            # Other databases use the index only with explicit bounds.
            wanted |= {f"{field}__gte": term, f"{field}__lt": f"{term}\uffff"}
        return Lookup(Q(**wanted), is_prefix=True)
    if field != "object_id":
        return Lookup(Q(**{name: term}))
    # The index on ``object_id`` begins with account and kind.
    return Lookup(Q(**{name: term}, account__in=_known_accounts(), object_kind__in=_KINDS))


def search(
    model: type[Model], lookups: Iterable[Lookup], find_more: Callable[[], tuple[Iterable[Any], bool]]
) -> Found:
    """Find the rows that match one of the lookups, and the rows of ``find_more``.

    ``find_more`` returns keys, and True if there are more rows.
    """
    known = list(lookups)
    rows: QuerySet[Any] = model._default_manager.order_by().values_list("pk", flat=True)
    keys: dict[Any, None] = {}
    wanted, is_cut = Q(), False
    if exact := [found.rows for found in known if not found.is_prefix]:
        either = functools.reduce(operator.or_, exact)
        found = list(rows.filter(either)[: MAX_IDS + 1])
        if len(found) > MAX_IDS:
            # With this many matches, the list finds them quickly in any order.
            wanted = either
        else:
            keys |= dict.fromkeys(found)
    for prefix in (found.rows for found in known if found.is_prefix):
        found = list(rows.filter(prefix).order_by("pk")[: MAX_IDS + 1])
        keys |= dict.fromkeys(found[:MAX_IDS])
        is_cut |= len(found) > MAX_IDS
    if not wanted:
        others, others_cut = find_more()
        keys |= dict.fromkeys(others)
        is_cut |= others_cut
    return Found(wanted | Q(pk__in=list(keys)), is_cut)


def _known_accounts() -> list[str]:
    """Return the accounts that are or once were configured."""
    return sorted({*conf.aliases(), *AccountState.objects.values_list("pk", flat=True)})
