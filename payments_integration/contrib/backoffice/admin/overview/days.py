"""Compare the money of today and of yesterday in each currency with the usual amount. The overview begins with this.

The usual amount is the average of the same weekday in the weeks before. For today, it counts only money that moved
before the same time of the day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Model
from django.utils.translation import gettext as _, ngettext

from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.admin.days import FROM, TO
from payments_integration.contrib.backoffice.admin.overview.kinds import CHARGED_BACK, RECEIVED, Kind
from payments_integration.contrib.backoffice.admin.overview.statistics import WEEKS, Statistics
from payments_integration.contrib.finance.models import Movement
from payments_integration.dates import day_of, in_words, on_site
from payments_integration.money import format_amount, format_count
from payments_integration.validation.text import StrOrPromise


@dataclass(frozen=True, slots=True)
class Figure:
    """An amount of one day. Its row names the currency. A text is empty if no money moved, or none usually moves."""

    heading: StrOrPromise
    amount: str
    #: The address of its movements.
    url: str
    usual: str
    #: The difference from the usual amount, such as "+14 %".
    change: str


@dataclass(frozen=True, slots=True)
class DayTable:
    """One day, with a row for each currency and a column for each kind of money."""

    id: str
    title: str
    #: The address of its cash book.
    url: str
    headings: list[StrOrPromise]
    #: (currency, figures).
    rows: list[tuple[str, list[Figure]]]


@dataclass(slots=True)
class _Sum:
    count: int = 0
    amount: int = 0
    early: int = 0


class DayTables:
    """The tables of today and of yesterday, with these kinds of money.

    ``book(period)`` returns the address of a cash book.
    """

    def __init__(
        self,
        found: Statistics,
        kinds: list[Kind],
        currencies: list[str],
        link: Callable[..., str],
        book: Callable[[str], str],
    ) -> None:
        self._found = found
        self._kinds = kinds
        self._currencies = currencies
        self._link = link
        self._book = book
        self._today = found.days.last
        self._begun = min((group.day for group in found.movements), default=self._today)
        self._sums: dict[tuple[str, Kind, int], _Sum] = defaultdict(_Sum)
        for group in found.movements:
            for kind in kinds:
                if group.status in kind.kinds:
                    one = self._sums[group.currency, kind, group.day]
                    one.count += group.count
                    one.amount += kind.sign * group.amount
                    one.early += kind.sign * group.early

    def context(self) -> dict[str, Any]:
        if not self._found.movements:
            return {"days": [], "usual": ""}
        has_chargebacks = any(kind is CHARGED_BACK for _currency, kind, _day in self._sums)
        kinds = [kind for kind in self._kinds if has_chargebacks or kind is not CHARGED_BACK]
        now = on_site(self._found.moved_until)
        until = _("Today until %(time)s") % {"time": in_words(now, "TIME_FORMAT")}
        weekday = in_words(now.date() - timedelta(days=1), "l")
        yesterday = _("Yesterday, %(weekday)s") % {"weekday": weekday}
        return {
            "days": [
                self._table("pi-today", until, "today", self._today, kinds),
                self._table("pi-yesterday", yesterday, "yesterday", self._today - 1, kinds),
            ],
            "usual": self._usual_in_words(),
        }

    def _table(self, name: str, title: str, period: str, day: int, kinds: list[Kind]) -> DayTable:
        rows = [(currency, [self._figure(currency, kind, day) for kind in kinds]) for currency in self._currencies]
        shown = [row for row in rows if any(figure.amount or figure.usual for figure in row[1])]
        return DayTable(name, title, self._book(period), [kind.label for kind in kinds], shown)

    def _figure(self, currency: str, kind: Kind, day: int) -> Figure:
        one = self._sums.get((currency, kind, day), _Sum())
        usual = self._usual(currency, kind, day)
        if not one.count and not usual:
            return Figure(kind.label, "", "", "", "")
        return Figure(
            kind.label,
            display.text(format_amount(one.amount, currency)),
            self._movements(currency, kind, day) if one.count else "",
            "" if usual is None else display.text(format_amount(usual, currency)),
            _change(one.amount, usual) if kind is RECEIVED and usual else "",
        )

    def _weeks(self, day: int) -> list[int]:
        """Return the same weekday in the weeks before, since money began to move."""
        return [day - 7 * number for number in range(1, WEEKS + 1) if day - 7 * number >= self._begun]

    def _usual(self, currency: str, kind: Kind, day: int) -> int | None:
        """Return the usual amount in minor units, rounded half up; None if there is no week to compare with."""
        weeks = self._weeks(day)
        if not weeks:
            return None
        sums = [self._sums.get((currency, kind, week), _Sum()) for week in weeks]
        total = sum(one.early if day == self._today else one.amount for one in sums)
        return (2 * total + len(weeks)) // (2 * len(weeks))

    def _usual_in_words(self) -> str:
        weeks = max(len(self._weeks(day)) for day in (self._today, self._today - 1))
        if not weeks:
            return _("What is usual is known after a week.")
        return ngettext(
            "Usual: what moved on the same weekday last week; for today, until the same time.",
            "Usual: the average of the same weekday in the last %(count)s weeks; for today, until the same time.",
            weeks,
        ) % {"count": weeks}

    def _movements(self, currency: str, kind: Kind, day: int) -> str:
        model: type[Model] = Movement
        date = day_of(self._found.days.bounds[day]).isoformat()
        return self._link(model, currency=currency, **kind.filters, **{FROM: date, TO: date})


def _change(amount: int, usual: int) -> str:
    percent = round(100 * (amount - usual) / abs(usual))
    sign = "\N{MINUS SIGN}" if percent < 0 else "+" if percent else ""
    return f"{sign}{format_count(abs(percent))}\N{NO-BREAK SPACE}%"
