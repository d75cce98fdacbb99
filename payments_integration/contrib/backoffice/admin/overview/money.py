"""Show the overview's money: today and yesterday in every currency, and a month of the currency that is chosen.

Money counts on the day when it moved, as in the cash book. Objects that are broken down by status count on the day
when they were created. Amounts of different currencies are never added.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db.models import Model
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.admin.days import FROM as DAYS_FROM, TO as DAYS_TO
from payments_integration.contrib.backoffice.admin.overview.charts import Chart, Series
from payments_integration.contrib.backoffice.admin.overview.days import DayTables
from payments_integration.contrib.backoffice.admin.overview.kinds import NET, Kind, seen_movements, shown
from payments_integration.contrib.backoffice.admin.overview.statistics import Group, Statistics
from payments_integration.contrib.backoffice.admin.overview.success import success_chart
from payments_integration.contrib.finance.models import Movement
from payments_integration.dates import day_of, in_words
from payments_integration.enums import Currency, PaymentStatus
from payments_integration.models import Payment, Payout, Refund
from payments_integration.money import exponent, format_money
from payments_integration.validation.text import StrOrPromise

#: The number of the look in dashboard.js by status. The colours are the lists' colours: green, red, grey, and amber or
#: blue for waiting.
LOOKS: dict[str, int] = {
    PaymentStatus.SUCCEEDED: 0, PaymentStatus.FAILED: 1, PaymentStatus.CHARGEBACK: 6, PaymentStatus.EXPIRED: 5,
    PaymentStatus.CANCELED: 7, PaymentStatus.CREATED: 2, PaymentStatus.PROCESSING: 8, PaymentStatus.REQUIRES_ACTION: 3,
    PaymentStatus.ON_HOLD: 9, PaymentStatus.PARTIALLY_PAID: 10, PaymentStatus.OVERPAID: 11,
}  # fmt: skip
#: The look of a status that this version does not know.
_UNKNOWN_LOOK = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """An amount, the number of its rows and the URL of their list."""

    amount: str
    count: int
    url: str = ""


@dataclass(frozen=True, slots=True)
class Period:
    """A range of days of the statistics, from index ``first`` to index ``last``, both included."""

    label: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Row:
    #: The name as plain text, for the links.
    name: str
    #: The same name, or a status with its colour.
    label: str
    #: (heading, cell) of each period.
    cells: list[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The rows of one kind by status."""

    title: StrOrPromise
    rows: list[Row]


#: The query parameter of the currency whose month is shown.
CURRENCY = "currency"


@dataclass(frozen=True, slots=True)
class CurrencyPanel:
    currency: str
    #: Money in and out.
    flows: list[Row]
    #: Money in and out by day; None if none has moved.
    chart: Chart | None
    #: Payments by day and status; None without payments.
    volume: Chart | None
    by_status: list[Breakdown]


class MoneyPanels:
    """The money of one account for one user.

    ``link(model, **filters)`` returns the URL of a list, and ``book(period)`` the URL of a cash book. ``sees(model)``
    returns True if the user may see rows of the model.
    """

    def __init__(
        self,
        found: Statistics,
        link: Callable[..., str],
        book: Callable[[str], str],
        sees: Callable[[type[Model]], bool],
    ) -> None:
        # The cache has the same for every user.
        seen = seen_movements(sees)
        self._kinds = shown(seen)
        self._found = replace(found, movements=[group for group in found.movements if group.status in seen])
        self._book = book
        self._link = link
        self._sees = sees
        self._groups: dict[type[Model], list[Group]] = {
            Payment: found.payments,
            Payout: found.payouts,
            Refund: found.refunds,
        }
        bounds = found.days.bounds[:-1]
        self._dates = [day_of(at).isoformat() for at in bounds]
        today = found.days.last
        self._weeks = (
            Period(_("%(count)s days") % {"count": 7}, today - 6, today),
            Period(_("%(count)s days") % {"count": len(found.days)}, 0, today),
        )
        self._periods = (
            Period(_("Today"), today, today),
            Period(_("Yesterday"), today - 1, today - 1),
            *self._weeks,
        )
        # Make labels from noon, which is on the right day even if clocks skip midnight.
        self._labels = tuple(in_words(day_of(at + timedelta(hours=12)), "MONTH_DAY_FORMAT") for at in bounds)

    def context(self, asked: str) -> dict[str, Any]:
        """Return the template's context. ``asked`` is the chosen currency; other texts select the most used one."""
        models = [model for model in self._groups if self._sees(model)]
        currencies = self._currencies(models)
        chosen = asked if asked in currencies else self._busiest(currencies, models)
        return {
            "money_shown": bool(models) or self._sees(Movement),
            **DayTables(self._found, self._kinds, currencies, self._link, self._book).context(),
            "has_net": NET in self._kinds,
            "currencies": currencies,
            "panel": self._panel(chosen, models) if chosen else None,
            "methods": success_chart(self._found.payments) if self._sees(Payment) else None,
        }

    def _visible(self, models: Iterable[type[Model]]) -> list[Group]:
        return [*self._found.movements, *(group for model in models for group in self._groups[model])]

    def _currencies(self, models: Iterable[type[Model]]) -> list[str]:
        """Return the currencies with any money, in the order of the spec, then unknown ones."""
        present = {group.currency for group in self._visible(models)}
        known = [currency for currency in Currency.values if currency in present]
        return known + sorted(present.difference(known))

    def _busiest(self, currencies: list[str], models: Iterable[type[Model]]) -> str:
        """Return the currency with the most movements, payments, refunds and payouts, or "" if there is none."""
        counts: Counter[str] = Counter()
        for group in self._visible(models):
            counts[group.currency] += group.count
        return max(currencies, key=counts.__getitem__, default="")

    def _panel(self, currency: str, models: list[type[Model]]) -> CurrencyPanel:
        return CurrencyPanel(
            currency=currency,
            flows=self._flows(currency),
            chart=self._flow_chart(currency),
            volume=self._volume(currency) if self._sees(Payment) else None,
            by_status=[found for model in models if (found := self._by_status(model, currency)).rows],
        )

    # Payments by status

    def _volume(self, currency: str) -> Chart | None:
        groups = [group for group in self._found.payments if group.currency == currency]
        statuses = _in_order({group.status for group in groups}, PaymentStatus.values)
        amounts = _table(groups, lambda group: group.status, lambda group: group.amount)
        if not statuses:
            return None
        return Chart(
            id=f"pi-volume-{_slug(currency)}",
            title=_("%(currency)s: payments by day and status") % {"currency": currency},
            kind="bars",
            stacked=True,
            heading=_("Day"),
            labels=self._labels,
            series=tuple(
                self._daily(_label(status, PaymentStatus), amounts[status], currency, _look(status))
                for status in statuses
            ),
            decimals=exponent(currency),
            unit=currency,
        )

    def _by_status(self, model: type[Model], currency: str) -> Breakdown:
        groups = [group for group in self._groups[model] if group.currency == currency]
        choices = model.Status  # type: ignore[attr-defined]
        rows = [
            self._row(
                _label(status, choices),
                display.status(status, choices),
                model,
                [group for group in groups if group.status == status],
                currency,
                {"status": status},
                lambda group: group.amount,
                self._periods,
            )
            for status in _in_order({group.status for group in groups}, choices.values)
        ]
        return Breakdown(capfirst(str(model._meta.verbose_name_plural)), rows)

    # Money in and out

    def _flows(self, currency: str) -> list[Row]:
        """Return the row of the first kind, and the rows of other kinds with movements."""
        first, *others = (self._flow(kind, currency) for kind in self._kinds)
        return [first, *(row for row in others if any(cell.count for _label, cell in row.cells))]

    def _flow(self, kind: Kind, currency: str) -> Row:
        label = str(kind.label)
        groups = self._moved(kind, currency)
        return self._row(label, label, Movement, groups, currency, kind.filters, kind.amount, self._weeks)

    def _moved(self, kind: Kind, currency: str) -> list[Group]:
        return [group for group in self._found.movements if group.currency == currency and group.status in kind.kinds]

    def _row(
        self,
        name: str,
        label: str,
        model: type[Model],
        groups: list[Group],
        currency: str,
        filters: dict[str, str],
        amount: Callable[[Group], int],
        periods: Iterable[Period],
    ) -> Row:
        def cell(period: Period) -> Cell:
            some = [group for group in groups if period.first <= group.day <= period.last]
            count = sum(group.count for group in some)
            total = format_money(sum(map(amount, some)), currency)
            return Cell(total, count, self._list(model, period, currency=currency, **filters) if count else "")

        return Row(name, label, [(period.label, cell(period)) for period in periods])

    def _flow_chart(self, currency: str) -> Chart | None:
        series = []
        for kind in self._kinds:
            if kind.look is None:
                continue
            sums: dict[int, int] = defaultdict(int)
            for group in self._moved(kind, currency):
                sums[group.day] += kind.amount(group)
            series.append(self._daily(kind.label, sums, currency, kind.look))
        if not any(any(one.values) for one in series):
            return None
        return Chart(
            id=f"pi-flow-{_slug(currency)}",
            title=_("%(currency)s: money in and out by day") % {"currency": currency},
            kind="bars",
            heading=_("Day"),
            labels=self._labels,
            series=tuple(series),
            decimals=exponent(currency),
            unit=currency,
        )

    def _daily(self, name: StrOrPromise, amounts: dict[int, int], currency: str, look: int) -> Series:
        values = tuple(amounts.get(day, 0) for day in range(len(self._found.days)))
        return Series(name, values, tuple(format_money(value, currency) if value else "" for value in values), look)

    def _list(self, model: type[Model], period: Period, **filters: str) -> str:
        """Return the URL of the list of rows that were created, or moved, in a period."""
        days = {DAYS_FROM: self._dates[period.first]}
        if period.last < self._found.days.last:
            days[DAYS_TO] = self._dates[period.last]
        return self._link(model, **filters, **days)


def _table(
    groups: Iterable[Group], key: Callable[[Group], str], amount: Callable[[Group], int]
) -> dict[str, dict[int, int]]:
    """Return sums by key and day."""
    sums: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for group in groups:
        sums[key(group)][group.day] += amount(group)
    return sums


def _in_order(present: set[str], known: list[str]) -> list[str]:
    return [*(status for status in known if status in present), *sorted(present.difference(known))]


def _label(status: str, choices: Any) -> str:
    return display.text(dict(choices.choices).get(status, status))


def _look(status: str) -> int:
    return LOOKS.get(status, _UNKNOWN_LOOK)


def _slug(currency: str) -> str:
    """Return text for an HTML id, because an unknown currency may be any text."""
    return "".join(char if char.isalnum() and char.isascii() else f"-{ord(char):x}" for char in currency)
