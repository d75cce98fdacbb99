"""Filters of the lists. Their choices are the known values, so that no list needs a DISTINCT over its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from django.db.models import Model, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.timezone import localdate, make_aware
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.enums import Country, Currency, MethodFamily

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Stands for every value that this version does not know.
OTHER = "~other"
#: Unknown values in a row, by the index, that are looked for.
_ROUNDS = 6
#: The first and the last day, in a query string.
FROM, TO = "from", "to"
_FIRST_YEAR, _LAST_YEAR = 1900, 9990

Choices = list[tuple[str, "StrOrPromise"]]


class KnownValues(admin.SimpleListFilter):
    """Rows with one of the known values of a field, or with none of them."""

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
        return queryset.filter(**{field: value})

    def _known(self) -> list[str]:
        return [key for key, _label in type(self).values()]


def others(model: type[Model], field: str, known: Iterable[str]) -> list[str]:
    """The values of a field that are not known, each found by a few steps through the field's index.

    ``NOT IN`` would read the whole table for what is hardly ever there. Here the next value behind each known one is
    asked for, all in one statement; behind an unknown one that turns up, once more.
    """
    rows = model._default_manager.order_by()
    # MariaDB and MySQL take no notice of case: what they find for a known value is no unknown one.
    plain = str.casefold if connections[router.db_for_write(model)].vendor == "mysql" else str
    known = list(known)
    found: dict[str, None] = dict.fromkeys(map(plain, known))
    steps = [rows.order_by(field), *(rows.filter(**{f"{field}__gt": value}).order_by(field) for value in known)]
    unknown: list[str] = []
    for _round in range(_ROUNDS):
        columns = {f"step_{number}": Subquery(step.values(field)[:1]) for number, step in enumerate(steps)}
        values = rows.annotate(**columns).values_list(*columns)[:1]
        new = {plain(value): value for row in values for value in row if value is not None}
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
    # With one account there is nothing to choose.
    return [(alias, alias) for alias in aliases] if len(aliases) > 1 else []


ACCOUNT = known("account", _("account"), _accounts)
COUNTRY = known("country", _("country"), Country)
CURRENCY = known("currency", _("currency"), Currency)
FAMILY = known("method_family", _("method family"), MethodFamily)


class Days(admin.ListFilter):
    """Rows of one day or of a range of days, both ends included, in the current time zone.

    A form that needs no script. What is no date is said to be none, and nothing is listed: a list of everything would
    be taken for the list of those days.
    """

    title = _("day")
    template = "admin/payments_integration/includes/days.html"
    #: The field with the time.
    field_name: str
    #: What of the query string the form repeats.
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
        spans: list[tuple[StrOrPromise, date | None]] = [
            (_("Any day"), None),
            (_("Today"), today),
            (_("Past 7 days"), today - timedelta(days=6)),
            (_("Past 30 days"), today - timedelta(days=29)),
        ]
        for words, first in spans:
            wanted = {FROM: first.isoformat(), TO: today.isoformat()} if first else {}
            yield {
                "selected": self.used_parameters == wanted,
                "query_string": changelist.get_query_string({FROM: None, TO: None, **wanted}),
                "display": words,
            }


class DaysForm(forms.Form):
    """Two days, either or both of them."""

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        super().__init__(data, auto_id="pi-days-%s")
        for name, label in ((FROM, _("From")), (TO, _("To, included"))):
            # A browser's own calendar: it takes a value as the standard writes it, in every language.
            widget = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
            self.fields[name] = Day(label=label, required=False, widget=widget, input_formats=["%Y-%m-%d"])

    def clean(self) -> dict[str, Any]:
        days = {FROM: None, TO: None, **self.cleaned_data}
        if days[FROM] and days[TO] and days[FROM] > days[TO]:
            self.add_error(TO, _("The last day is before the first one."))
        return days


class Day(forms.DateField):
    """A day that has a beginning and an end in every time zone."""

    def clean(self, value: Any) -> Any:
        found = super().clean(value)
        if found and not _FIRST_YEAR <= found.year <= _LAST_YEAR:
            raise ValidationError(_("There are no rows of such a year."))
        return found


def days(field_name: str) -> type[Days]:
    """A filter on the day of a time."""
    return cast("type[Days]", type("DaysFilter", (Days,), {"field_name": field_name}))


def midnight(day: date) -> datetime:
    """When a day begins; where clocks are changed at midnight, the first moment that there is."""
    at = datetime.combine(day, time.min)
    return make_aware(at) if settings.USE_TZ else at


def parameters(list_filter: Iterable[Any]) -> set[str]:
    """The names in a query string that a list's filters understand."""
    names: set[str] = set()
    for item in list_filter:
        if isinstance(item, type) and issubclass(item, Days):
            names |= {FROM, TO}
        else:
            names.add(str(getattr(item, "parameter_name", item)))
    return names
