"""The filters and the search of the lists, each of which reads through an index.

The filters' choices are the known values, so that no list needs a DISTINCT over its table. A search tries the whole
typed text with every lookup, and its words with the index of search terms (``terms``). The ids of matching rows are
looked up first: with one statement for everything, a database could scan the list in its order until a page is full.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db import connections, router
from django.db.models import Model, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.timezone import localdate, make_aware
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.admin.lists.terms import Matches
from payments_integration.enums import Country, Currency, Kind, MethodFamily
from payments_integration.models import AccountState, Erasure

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Selects every value that this version does not know.
OTHER = "~other"
#: Stands between several values of one filter, as in links of the overview.
SEPARATOR = ","
#: The maximum of consecutive unknown values that are looked up.
_ROUNDS = 6
#: Query parameters for the first and the last day.
FROM, TO = "from", "to"
_FIRST_YEAR, _LAST_YEAR = 1900, 9990

#: The maximum of ids that a search looks up.
MAX_IDS = 500
#: The length of the longest searched field.
_MAX_TERM = 255
_KINDS = ("", *Kind.values, Erasure.OPERATION)

Choices = list[tuple[str, "StrOrPromise"]]


class KnownValues(admin.SimpleListFilter):
    """Filters by one of the known values of a field, or by all others."""

    values: Callable[[], Choices]
    #: Whether the provider may send values that this version does not know.
    open_ended = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, StrOrPromise]]:
        found = type(self).values()
        return [*found, (OTHER, _("other"))] if found and self.open_ended else found

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        field = str(self.parameter_name)
        if value == OTHER:
            return queryset.filter(**{f"{field}__in": others(queryset.model, field, self._known())})
        if "\x00" in value:
            raise IncorrectLookupParameters
        if SEPARATOR in value:
            return queryset.filter(**{f"{field}__in": value.split(SEPARATOR)})
        return queryset.filter(**{field: value})

    def _known(self) -> list[str]:
        return [key for key, _label in type(self).values()]


def others(model: type[Model], field: str, known: Iterable[str]) -> list[str]:
    """The values of a field that are not known, found with a few steps through the field's index.

    ``NOT IN`` would read the whole table for values that are rare. Here one statement asks for the next value after
    each known one, and is repeated for each unknown value that it finds.
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
    """A filter on ``field``; ``values`` is an enumeration or a function that gives the choices."""
    choices = (lambda: list(values.choices)) if hasattr(values, "choices") else values
    made = type(
        f"{field.title().replace('_', '')}Filter",
        (KnownValues,),
        {
            "title": title,
            "parameter_name": field,
            "values": staticmethod(choices),
            "open_ended": open_ended,
        },
    )
    return cast("type[KnownValues]", made)


def _accounts() -> Choices:
    aliases = conf.aliases()
    # With one account there is no choice.
    return [(alias, alias) for alias in aliases] if len(aliases) > 1 else []


ACCOUNT = known("account", _("account"), _accounts)
COUNTRY = known("country", _("country"), Country)
CURRENCY = known("currency", _("currency"), Currency)
FAMILY = known("method_family", _("method family"), MethodFamily)


class Days(admin.ListFilter):
    """Filters by a range of days, both ends included, in the current time zone.

    The form works without scripts. After an invalid date the list is empty, because a full list would look like the
    list of those days.
    """

    title = _("day")
    template = "admin/payments_integration/includes/days.html"
    #: Themes of the admin read it from every filter.
    parameter_name = FROM
    #: The name of the field with the time.
    field_name: str
    #: The other parameters of the query string, repeated by the form.
    kept: tuple[tuple[str, str], ...] = ()

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: type[Model], model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        given = {name: str(params.pop(name)[-1]).strip() for name in (FROM, TO) if name in params}
        self.used_parameters = {name: value for name, value in given.items() if value}
        self.form = DaysForm(self.used_parameters or None)
        self.is_wrong = bool(self.used_parameters) and not self.form.is_valid()

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [FROM, TO]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.is_wrong:
            return queryset.none()
        if not self.used_parameters:
            return queryset
        first, last = self.form.cleaned_data[FROM], self.form.cleaned_data[TO]
        if first:
            queryset = queryset.filter(**{f"{self.field_name}__gte": midnight(first)})
        if last:
            queryset = queryset.filter(**{f"{self.field_name}__lt": midnight(last + timedelta(days=1))})
        return queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        kept = changelist.get_query_string({FROM: None, TO: None}).removeprefix("?")
        self.kept = tuple(parse_qsl(kept, keep_blank_values=True))
        today = localdate()
        ranges: list[tuple[StrOrPromise, date | None]] = [
            (_("Any day"), None),
            (_("Today"), today),
            (_("Past 7 days"), today - timedelta(days=6)),
            (_("Past 30 days"), today - timedelta(days=29)),
        ]
        for label, first in ranges:
            parameters = {FROM: first.isoformat(), TO: today.isoformat()} if first else {}
            yield {
                "selected": self.used_parameters == parameters,
                "query_string": changelist.get_query_string({FROM: None, TO: None, **parameters}),
                "display": label,
            }


class DaysForm(forms.Form):
    """The first and the last day; either may be empty."""

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        super().__init__(data, auto_id="pi-days-%s")
        for name, label in ((FROM, _("From")), (TO, _("To, included"))):
            # The browser's date picker takes ISO dates in every language.
            widget = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
            self.fields[name] = Day(label=label, required=False, widget=widget, input_formats=["%Y-%m-%d"])

    def clean(self) -> dict[str, Any]:
        days = {FROM: None, TO: None, **self.cleaned_data}
        if days[FROM] and days[TO] and days[FROM] > days[TO]:
            self.add_error(TO, _("The last day is before the first one."))
        return days


class Day(forms.DateField):
    """A day whose start and end can be computed in every time zone."""

    def clean(self, value: Any) -> Any:
        found = super().clean(value)
        if found and not _FIRST_YEAR <= found.year <= _LAST_YEAR:
            raise ValidationError(_("There are no rows from that year."))
        return found


def days(field_name: str) -> type[Days]:
    """A filter on the day of a time field."""
    return cast("type[Days]", type("DaysFilter", (Days,), {"field_name": field_name}))


def midnight(day: date) -> datetime:
    """When a day begins in the current time zone; if clocks skip midnight, its first moment."""
    at = datetime.combine(day, time.min)
    return make_aware(at) if settings.USE_TZ else at


def parameters(list_filter: Iterable[Any]) -> set[str]:
    """The query parameters of a list's filters."""
    names: set[str] = set()
    for item in list_filter:
        if isinstance(item, type) and issubclass(item, Days):
            names |= {FROM, TO}
        else:
            names.add(str(getattr(item, "parameter_name", item)))
    return names


@dataclass(frozen=True, slots=True)
class Lookup:
    """One way to look up a term."""

    rows: Q
    #: Whether the term is the beginning of an id, which may match any number of rows.
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search, as a filter."""

    rows: Q
    #: Whether not all rows that match are found.
    is_cut: bool = False


def lookup(model: type[Model], name: str, term: str) -> Lookup | None:
    """The lookup of ``term`` by one of ``search_fields``; None if no value can match."""
    if not term or len(term) > _MAX_TERM:
        return None
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


def search(model: type[Model], lookups: Iterable[Lookup], by_terms: Callable[[], Matches]) -> Found:
    """The rows that match one of the lookups, or are found by their terms."""
    known = list(lookups)
    rows: QuerySet[Any] = model._default_manager.order_by().values_list("pk", flat=True)
    keys: dict[Any, None] = {}
    wanted, is_cut = Q(), False
    if exact := [found.rows for found in known if not found.is_prefix]:
        either = functools.reduce(operator.or_, exact)
        found = list(rows.filter(either)[: MAX_IDS + 1])
        if len(found) > MAX_IDS:
            # So many matches are found quickly in any order. The terms would find some of them again.
            wanted = either
        else:
            keys |= dict.fromkeys(found)
    for prefix in (found.rows for found in known if found.is_prefix):
        found = list(rows.filter(prefix).order_by("pk")[: MAX_IDS + 1])
        keys |= dict.fromkeys(found[:MAX_IDS])
        is_cut |= len(found) > MAX_IDS
    if not wanted:
        matching = by_terms()
        keys |= dict.fromkeys(pk for of_kind in matching.ids.values() for pk in of_kind)
        is_cut |= matching.is_cut
    return Found(wanted | Q(pk__in=list(keys)), is_cut)


def _known_accounts() -> list[str]:
    """The configured accounts and those that once were configured."""
    return sorted({*conf.aliases(), *AccountState.objects.values_list("pk", flat=True)})
