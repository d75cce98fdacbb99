"""The overview's money: received, charged back, refunded and paid out by period and by status.

Everything counts on the day it was created. Amounts of different currencies are never added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Model
from django.utils.text import capfirst
from django.utils.timezone import localtime
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.admin.dashboard.charts import Chart, Series
from payments_integration.admin.dashboard.statistics import Group, Statistics
from payments_integration.admin.dashboard.success import success_chart
from payments_integration.admin.lists.days import FROM as DAYS_FROM, TO as DAYS_TO
from payments_integration.admin.lists.filters import SEPARATOR
from payments_integration.admin.shared import display
from payments_integration.dates import in_words
from payments_integration.enums import (
    RECEIVED_PAYMENT_STATUSES,
    Currency,
    PaymentStatus,
    PayoutStatus,
    RefundStatus,
)
from payments_integration.models import Payment, Payout, Refund
from payments_integration.money import exponent, format_money

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: The money came, also if a chargeback took it back later.
_RECEIVED = RECEIVED_PAYMENT_STATUSES | {PaymentStatus.CHARGEBACK}
#: The looks of dashboard.js by status, in the colours of the lists: green, red, grey, and amber or blue for waiting.
LOOKS: dict[str, int] = {
    PaymentStatus.SUCCEEDED: 0, PaymentStatus.FAILED: 1, PaymentStatus.CHARGEBACK: 6, PaymentStatus.EXPIRED: 5,
    PaymentStatus.CANCELED: 7, PaymentStatus.CREATED: 2, PaymentStatus.PROCESSING: 8, PaymentStatus.REQUIRES_ACTION: 3,
    PaymentStatus.ON_HOLD: 9, PaymentStatus.PARTIALLY_PAID: 10, PaymentStatus.OVERPAID: 11,
}  # fmt: skip
#: A status that this version does not know.
_UNKNOWN_LOOK = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """An amount, the number of its rows and the URL of their list."""

    amount: str
    count: int
    url: str = ""


@dataclass(frozen=True, slots=True)
class Period:
    """Days of the statistics, both included, as indexes."""

    label: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Row:
    #: Plain text, for the links.
    name: str
    #: The same, or a status with its colour.
    label: str
    #: (heading, cell) of each period.
    cells: list[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The rows of one kind by status."""

    title: StrOrPromise
    rows: list[Row]


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


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of money: its model, the amount that counts, and the groups that count as moved."""

    model: type[Model]
    label: StrOrPromise
    look: int
    moved: Callable[[Group], bool]
    amount: Callable[[Group], int]
    filters: dict[str, str]


class MoneyPanels:
    """The money of one account for one user.

    ``link(model, **filters)``: the URL of a list; ``sees(model)``: whether the user may see such rows.
    """

    def __init__(self, found: Statistics, link: Callable[..., str], sees: Callable[[type[Model]], bool]) -> None:
        self._found = found
        self._link = link
        self._sees = sees
        self._groups: dict[type[Model], list[Group]] = {
            Payment: found.payments,
            Payout: found.payouts,
            Refund: found.refunds,
        }
        bounds = found.days.bounds[:-1]
        self._dates = [localtime(at).date().isoformat() for at in bounds]
        today = found.days.last
        self._periods = (
            Period(_("Yesterday"), today - 1, today - 1),
            Period(_("Today"), today, today),
            Period(_("%(count)s days") % {"count": 7}, today - 6, today),
            Period(_("%(count)s days") % {"count": len(found.days)}, 0, today),
        )
        # Labels are made from noon, which is on the right day even if clocks skip midnight.
        self._labels = tuple(in_words(localtime(at + timedelta(hours=12)).date(), "MONTH_DAY_FORMAT") for at in bounds)

    def context(self) -> dict[str, Any]:
        kinds = [kind for kind in _KINDS if self._sees(kind.model)]
        return {
            "money_shown": bool(kinds),
            "periods": [period.label for period in self._periods],
            "currencies": [self._panel(currency, kinds) for currency in self._currencies(kinds)],
            "methods": success_chart(self._found.payments) if self._sees(Payment) else None,
        }

    def _currencies(self, kinds: Iterable[_Kind]) -> list[str]:
        """The currencies with any money, in the order of the spec, then unknown ones."""
        present = {group.currency for kind in kinds for group in self._groups[kind.model]}
        known = [currency for currency in Currency.values if currency in present]
        return known + sorted(present.difference(known))

    def _panel(self, currency: str, kinds: list[_Kind]) -> CurrencyPanel:
        return CurrencyPanel(
            currency=currency,
            flows=self._flows(currency, kinds),
            chart=self._flow_chart(currency, kinds),
            volume=self._volume(currency) if self._sees(Payment) else None,
            by_status=[
                found
                for model in dict.fromkeys(kind.model for kind in kinds)
                if (found := self._by_status(model, currency)).rows
            ],
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
            )
            for status in _in_order({group.status for group in groups}, choices.values)
        ]
        return Breakdown(capfirst(str(model._meta.verbose_name_plural)), rows)

    # Money in and out

    def _flows(self, currency: str, kinds: list[_Kind]) -> list[Row]:
        """The first kind, and of the others those that moved."""
        first, *others = (self._flow(kind, currency) for kind in kinds)
        return [first, *(row for row in others if any(cell.count for _label, cell in row.cells))]

    def _flow(self, kind: _Kind, currency: str) -> Row:
        groups = [group for group in self._groups[kind.model] if group.currency == currency and kind.moved(group)]
        return self._row(str(kind.label), str(kind.label), kind.model, groups, currency, kind.filters, kind.amount)

    def _row(
        self,
        name: str,
        label: str,
        model: type[Model],
        groups: list[Group],
        currency: str,
        filters: dict[str, str],
        amount: Callable[[Group], int],
    ) -> Row:
        def cell(period: Period) -> Cell:
            some = [group for group in groups if period.first <= group.day <= period.last]
            count = sum(group.count for group in some)
            total = format_money(sum(map(amount, some)), currency)
            return Cell(total, count, self._list(model, period, currency=currency, **filters) if count else "")

        return Row(name, label, [(period.label, cell(period)) for period in self._periods])

    def _flow_chart(self, currency: str, kinds: list[_Kind]) -> Chart | None:
        series = []
        for kind in kinds:
            groups = [group for group in self._groups[kind.model] if group.currency == currency and kind.moved(group)]
            amounts = _table(groups, lambda group: "", kind.amount)[""]
            series.append(self._daily(kind.label, amounts, currency, kind.look))
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
        """The URL of the list of rows created in a period."""
        days = {DAYS_FROM: self._dates[period.first]}
        if period.last < self._found.days.last:
            days[DAYS_TO] = self._dates[period.last]
        return self._link(model, **filters, **days)


def _table(
    groups: Iterable[Group], key: Callable[[Group], str], amount: Callable[[Group], int]
) -> dict[str, dict[int, int]]:
    """Sums by key and day."""
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
    """An HTML id: an unknown currency may be any text."""
    return "".join(char if char.isalnum() and char.isascii() else f"-{ord(char):x}" for char in currency)


_KINDS = (
    _Kind(
        model=Payment,
        label=gettext_lazy("Received"),
        look=0,
        moved=lambda group: bool(group.received) and group.status in _RECEIVED,
        amount=lambda group: group.received,
        filters={"status": SEPARATOR.join(sorted(_RECEIVED))},
    ),
    # As in the monthly statement, the money came first. What was refunded before is not taken a second time.
    _Kind(
        model=Payment,
        label=gettext_lazy("Charged back"),
        look=6,
        moved=lambda group: group.status == PaymentStatus.CHARGEBACK,
        amount=lambda group: group.received - group.refunded,
        filters={"status": PaymentStatus.CHARGEBACK.value},
    ),
    _Kind(
        model=Refund,
        label=gettext_lazy("Refunded"),
        look=3,
        moved=lambda group: group.status == RefundStatus.SUCCEEDED,
        amount=lambda group: group.amount,
        filters={"status": RefundStatus.SUCCEEDED.value},
    ),
    # A payout that executes a refund is counted as that refund.
    _Kind(
        model=Payout,
        label=gettext_lazy("Paid out, without refunds"),
        look=2,
        moved=lambda group: group.status == PayoutStatus.SUCCEEDED and not group.refund,
        amount=lambda group: group.amount,
        filters={"status": PayoutStatus.SUCCEEDED.value},
    ),
)
