"""Filter a list by day: a range of dates, or a period such as "yesterday", whose days depend on today."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any, cast
from urllib.parse import parse_qsl

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from payments_integration import dates
from payments_integration.admin.shared.typed import TypedForm
from payments_integration.validation.text import StrOrPromise

#: The query parameters: the first and the last day, or the name of a period.
FROM, TO, PERIOD = "from", "to", "days"
#: The query parameter of a balance's page: the time up to which its changes are shown.
UNTIL = "until"
_FIRST_YEAR, LAST_YEAR = 1900, 9990

_DAY = timedelta(days=1)


def time_in(given: str) -> datetime | None:
    """Return the time that an address or a form names; None if it is not valid or has no offset."""
    try:
        found = parse_datetime(given)
    except ValueError:
        return None
    if found is None or timezone.is_naive(found) or not _FIRST_YEAR <= found.year <= LAST_YEAR:
        return None
    return found


def _last_month(today: date) -> tuple[date, date]:
    end = today.replace(day=1) - _DAY
    return end.replace(day=1), end


#: Each period by its name in addresses: its label, and its first and last day relative to today.
PERIODS: dict[str, tuple[StrOrPromise, Callable[[date], tuple[date, date]]]] = {
    "today": (_("Today"), lambda today: (today, today)),
    "yesterday": (_("Yesterday"), lambda today: (today - _DAY, today - _DAY)),
    "past-7": (_("Past 7 days"), lambda today: (today - 6 * _DAY, today)),
    "past-30": (_("Past 30 days"), lambda today: (today - 29 * _DAY, today)),
    "this-month": (_("This month"), lambda today: (today.replace(day=1), today)),
    "last-month": (_("Last month"), _last_month),
}


class Days(admin.ListFilter):
    """Filters by a range of days, both ends included, in the site's time zone.

    The form works without scripts. After an invalid date, the list is empty, because a full list would look like the
    list of the chosen days.
    """

    title = _("day")
    template = "admin/payments_backoffice/includes/days.html"
    #: Themes of the admin read this attribute from every filter.
    parameter_name = FROM
    #: The name of the field with the time.
    field_name: str
    #: Precedes the names of the parameters, so that a list can have several of these filters.
    prefix = ""
    #: The other parameters of the query string, repeated by the form.
    kept: tuple[tuple[str, str], ...] = ()

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: type[Model], model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        given = {name: str(params.pop(name)[-1]).strip() for name in sorted(self.parameters()) if name in params}
        self.used_parameters = {name: value for name, value in given.items() if value}
        self._today = dates.today()
        self.form = DaysForm(self.prefix, self._dates())
        self.is_wrong = bool(self.used_parameters) and not self.form.is_valid()

    @classmethod
    def parameters(cls) -> set[str]:
        """Return the names of its query parameters."""
        return {cls.prefix + name for name in (FROM, TO, PERIOD)}

    def _dates(self) -> dict[str, Any] | None:
        """Return the form's data. Dates override a period, so that the form narrows what a link has chosen."""
        period: Any = self.used_parameters.get(self.prefix + PERIOD)
        if period not in PERIODS or len(self.used_parameters) > 1:
            return self.used_parameters or None
        first, last = PERIODS[period][1](self._today)
        return {self.prefix + FROM: first.isoformat(), self.prefix + TO: last.isoformat()}

    @property
    def begins(self) -> bool:
        """Return True if it has a first day."""
        return bool(not self.is_wrong and self.form.is_bound and self.form.cleaned_data[self.prefix + FROM])

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [*sorted(self.parameters())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.is_wrong:
            return queryset.none()
        if not self.used_parameters:
            return queryset
        first, last = (self.form.cleaned_data[self.prefix + name] for name in (FROM, TO))
        start, end = dates.start_of(first) if first else None, dates.start_of(last + _DAY) if last else None
        return self.within(queryset, start, end)

    def within(self, rows: QuerySet[Any], start: datetime | None, end: datetime | None) -> QuerySet[Any]:
        """Return the rows from ``start`` (included) to ``end`` (excluded)."""
        if start:
            rows = rows.filter(**{f"{self.field_name}__gte": start})
        return rows.filter(**{f"{self.field_name}__lt": end}) if end else rows

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        without: dict[str, Any] = dict.fromkeys(sorted(self.parameters()))
        kept = changelist.get_query_string(without).removeprefix("?")
        self.kept = tuple(parse_qsl(kept, keep_blank_values=True))
        yield {
            "selected": not self.used_parameters,
            "query_string": changelist.get_query_string(without),
            "display": _("Any day"),
        }
        for name, (label, _bounds) in PERIODS.items():
            period = {self.prefix + PERIOD: name}
            yield {
                "selected": self.used_parameters == period,
                "query_string": changelist.get_query_string({**without, **period}),
                "display": label,
            }


class DaysForm(TypedForm):
    """The first and the last day. Either may be empty."""

    def __init__(self, prefix: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(data, auto_id="pi-days-%s")
        self._first, self._last = prefix + FROM, prefix + TO
        for name, label in ((self._first, _("From")), (self._last, _("To, included"))):
            # The browser's date picker takes ISO dates in every language.
            widget = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
            self.fields[name] = Day(label=label, required=False, widget=widget, input_formats=["%Y-%m-%d"])
        self._period = prefix + PERIOD

    def clean(self) -> dict[str, Any]:
        found = {self._first: None, self._last: None, **self.cleaned_data}
        if found[self._first] and found[self._last] and found[self._first] > found[self._last]:
            self.add_error(self._last, _("The last day is before the first one."))
        if self.data.get(self._period, "") not in ("", *PERIODS):
            self.add_error(self._first, _("This period is not known. Choose one of those above."))
        return found


class Day(forms.DateField):
    """A day whose start and end can be computed in every time zone."""

    def clean(self, value: Any) -> Any:
        found = super().clean(value)
        if found and not _FIRST_YEAR <= found.year <= LAST_YEAR:
            raise ValidationError(_("There are no rows from that year."))
        return found


class MovementDays(Days):
    """A filter on a day that the movement stores, so a later change of TIME_ZONE does not move it."""

    def within(self, rows: QuerySet[Any], start: datetime | None, end: datetime | None) -> QuerySet[Any]:
        if start:
            rows = rows.filter(**{f"{self.field_name}__gte": dates.day_of(start)})
        return rows.filter(**{f"{self.field_name}__lt": dates.day_of(end)}) if end else rows


def movement_days(field_name: str, prefix: str, title: Any) -> type[Days]:
    """Return a filter on a stored day of movements."""
    own = {"field_name": field_name, "prefix": prefix, "title": title, "parameter_name": prefix + FROM}
    return cast("type[Days]", type("MovementDaysFilter", (MovementDays,), own))


def days(field_name: str) -> type[Days]:
    """Return a filter on the day of a time field."""
    return cast("type[Days]", type("DaysFilter", (Days,), {"field_name": field_name}))


def with_days(list_filter: Iterable[Any]) -> tuple[Any, ...]:
    """Return the filters of a list with a filter by day in place of Django's filter on a time field."""
    return tuple(days(item) if isinstance(item, str) else item for item in list_filter)


def chosen_field(given: QueryDict, list_filter: Iterable[Any], usual: Collection[str]) -> str:
    """Return the time field of the filter with a parameter in the address, unless the field is one of ``usual``."""
    for item in list_filter:
        if isinstance(item, type) and issubclass(item, Days) and item.field_name not in ("", *usual):
            # Ignore a blank parameter, as the filter does: its list may contain rows without this time.
            return item.field_name if any(given.get(name, "").strip() for name in item.parameters()) else ""
    return ""
