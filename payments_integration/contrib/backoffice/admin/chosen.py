"""Show the current choice above a list: tabs with the number of their rows, and a chip for each filter that is set.

Counting stops at ``MOST``, and the query for the rows counts for all tabs. A tab has no number if no index bounds the
rows that the database reads. A list therefore costs the same with a hundred million rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.db.models import IntegerField, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import pgettext

from payments_integration.admin.lists.filters import SEPARATOR, KnownValues
from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.admin.days import PERIODS, Days
from payments_integration.db.statements import values_of
from payments_integration.money import format_count
from payments_integration.validation.text import StrOrPromise

#: The most rows that are counted for a tab.
MOST = 1_000


@dataclass(frozen=True, slots=True)
class Tab:
    """A link to some rows of a list."""

    label: StrOrPromise
    #: The query parameters that it sets. It removes the parameters of the other tabs.
    parameters: dict[str, str]
    #: Filters a queryset by the same condition.
    rows: Callable[[QuerySet[Any]], QuerySet[Any]]
    #: True if an index bounds the rows that are read to count them.
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class TabLink:
    label: StrOrPromise
    url: str
    is_current: bool
    #: "12" or "1,000+"; empty if it was not counted.
    count: str
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class Chip:
    """A link that removes one filter from the list."""

    label: str
    #: The URL of the list without the filter.
    url: str
    #: The query parameters of the filter.
    names: tuple[str, ...]


class _Count(Subquery):
    """The number of rows of a query with a LIMIT."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()


def in_status(label: StrOrPromise, statuses: Collection[str]) -> Tab:
    """Return the tab of the rows in one of these statuses."""
    wanted = sorted(statuses)
    return Tab(label, {"status": SEPARATOR.join(wanted)}, lambda rows: rows.filter(status__in=wanted))


def with_all(tabs: Collection[Tab]) -> list[Tab]:
    """Return the tabs after a tab for all rows."""
    return [Tab(pgettext("rows", "All"), {}, lambda rows: rows), *tabs] if tabs else []


def counts(request: HttpRequest, changelist: ChangeList, tabs: Collection[Tab]) -> dict[str, Any]:
    """Return annotations that count the rows of each tab; empty if they cannot be counted cheaply.

    They do not depend on the row that they annotate, so databases count once for the whole query.
    """
    rows = _countable(request, changelist, _parameters(tabs)) if tabs else None
    if rows is None:
        return {}
    return {
        _column(number): _Count(tab.rows(rows).values("pk")[: MOST + 1])
        for number, tab in enumerate(tabs)
        if tab.is_counted
    }


def counted(rows: list[Any], annotations: dict[str, Any], using: str) -> dict[str, int | None]:
    """Return the counts from the rows' annotations. Without rows, it takes another query."""
    if rows or not annotations:
        return {name: getattr(rows[0], name) for name in annotations}
    return dict(zip(annotations, values_of(using, *annotations.values()), strict=True))


def tab_links(changelist: ChangeList, tabs: Collection[Tab], found: dict[str, int | None]) -> list[TabLink]:
    """Return the tabs' links, which keep the other filters, the search and the order.

    ``found``: the number of rows of each counted tab.
    """
    without: dict[str, Any] = dict.fromkeys(_parameters(tabs))
    given = {name: changelist.params[name] for name in without if name in changelist.params}
    return [
        TabLink(
            tab.label, changelist.get_query_string({**without, **tab.parameters}), tab.parameters == given,
            _shown(found[_column(number)] or 0) if _column(number) in found else "", tab.parameters,
        )
        for number, tab in enumerate(tabs)
    ]  # fmt: skip


def _column(number: int) -> str:
    """Return the name of the annotation with the count of a tab."""
    return f"pi_tab_{number}"


def _shown(count: int) -> str:
    return f"{format_count(MOST)}+" if count > MOST else format_count(count)


def chips(changelist: ChangeList, tabs: Collection[TabLink]) -> Iterator[Chip]:
    """Yield a chip for the search and for each filter that is set, except filters that the current tab sets."""
    shown = {name for tab in tabs if tab.is_current for name in tab.parameters}
    if changelist.query:
        yield _chip(changelist, f"“{display.text(changelist.query)}”", [SEARCH_VAR])
    for spec in changelist.filter_specs:
        names = [name for name in spec.expected_parameters() if name]
        if any(spec.used_parameters.values()) and not shown & set(names):
            yield _chip(changelist, f"{capfirst(str(spec.title))}: {_words(spec)}", names)


def _chip(changelist: ChangeList, label: str, names: list[str]) -> Chip:
    return Chip(label, changelist.get_query_string(dict.fromkeys(names)), tuple(names))


def _words(spec: Any) -> str:
    """Return the chosen values of a filter in words."""
    # Django's filters on a field have lists of values, and choices without words.
    given = [str(value[-1] if isinstance(value, list) else value) for value in spec.used_parameters.values()]
    if isinstance(spec, Days):
        if len(given) == 1 and given[0] in PERIODS:
            return str(PERIODS[given[0]][0])
        first, last = (spec.used_parameters.get(name, "…") for name in spec.form.fields)
        return display.text(f"{first} → {last}")
    choices = spec.lookup_choices if isinstance(spec, SimpleListFilter) else ()
    known = {str(value): str(label) for value, label in choices}
    return display.text(", ".join(known.get(value, value) for item in given for value in item.split(SEPARATOR)))


def _parameters(tabs: Collection[Tab]) -> set[str]:
    return {name for tab in tabs for name in tab.parameters}


def _countable(request: HttpRequest, changelist: ChangeList, without: Collection[str]) -> QuerySet[Any] | None:
    """Return the rows of the list in every tab; None if they cannot be counted cheaply."""
    rows = changelist.root_queryset.order_by()
    others = [
        spec
        for spec in changelist.filter_specs
        if spec.used_parameters and not set(without) & set(spec.expected_parameters())
    ]
    if not all(isinstance(spec, Days | KnownValues) for spec in others) or getattr(request, "pi_is_cut", False):
        return None
    # Each tab has an index for its statuses in the order of creation, which does not help with another filter.
    is_indexed = all(isinstance(spec, Days) and spec.field_name == "created_at" for spec in others)
    if not changelist.query and not is_indexed:
        return None
    for spec in others:
        filtered = spec.queryset(request, rows)
        rows = rows if filtered is None else filtered
    return rows.filter(getattr(request, "pi_found", Q()))
