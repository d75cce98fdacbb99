"""Show the newest changes of a balance, each with the objects that changed at the same time.

The provider does not say which object changed a balance. So a change is shown with the payments, payouts and refunds
of its account and currency whose status changed between the previous change and this one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.db.models import Q
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from payments_integration.admin.models.balances import AMOUNTS
from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import ROWS, Page, Section, Table
from payments_integration.contrib.backoffice.admin.days import UNTIL, time_in
from payments_integration.contrib.backoffice.admin.overview.charts import Chart, Series
from payments_integration.contrib.finance.balances import changes_of
from payments_integration.contrib.finance.models import BalanceChange
from payments_integration.enums import (
    RECEIVED_PAYMENT_STATUSES,
    VAIN_PAYMENT_STATUSES,
    VOID_PAYOUT_STATUSES,
    PaymentStatus,
)
from payments_integration.models import Balance, Payment, Payout, Refund, StatusChange
from payments_integration.money import exponent, format_money
from payments_integration.validation.text import StrOrPromise

#: The number of changes that the chart shows.
CHART_CHANGES = 200
#: The objects that move money.
_MODELS: tuple[type[Any], ...] = (Payment, Payout, Refund)
#: A payment that comes into one of these statuses has brought no money.
_WITHOUT_MONEY = VAIN_PAYMENT_STATUSES | {
    PaymentStatus.CREATED, PaymentStatus.REQUIRES_ACTION, PaymentStatus.PROCESSING,
}  # fmt: skip
#: The provider may report the balance just before or after the object, and the time of an answer has no fractions.
_TOGETHER = timedelta(seconds=2)
#: The most status changes that are examined, of all accounts and currencies.
MAX_CHANGES = 1000
#: If there are more, only status changes within this time before each change of the balance are examined.
_NARROW = timedelta(minutes=1)
_BREAK = SafeString("<br>")
#: The number of objects that are shown per change.
OBJECTS = 5


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    """An object, and the status that it came into."""

    row: Any
    status: str
    at: datetime

    @property
    def money(self) -> int:
        """The money that the object moves in all: a payment less its fee, a payout with its fee, or a refund."""
        if isinstance(self.row, Payment):
            received: int = self.row.amount_received
            return received - (self.row.fee or 0) if self.row.net_amount is None else self.row.net_amount
        if isinstance(self.row, Payout):
            return int(self.row.amount) + (self.row.fee or 0)
        return int(self.row.amount)

    @property
    def sums(self) -> set[int]:
        """The sums that may have been moved. A chargeback or a returned payout does not move the fee."""
        row = self.row
        return {self.money, row.amount_received if isinstance(row, Payment) else row.amount} - {0}

    @property
    def direction(self) -> int:
        """Return 1 if the status can only raise what is available, -1 if it can only lower it, 0 if not known."""
        if isinstance(self.row, Payment):
            return -1 if self.status == PaymentStatus.CHARGEBACK else int(self.status in RECEIVED_PAYMENT_STATUSES)
        if self.status in VOID_PAYOUT_STATUSES:
            return 1
        return -1 if self.status in self.row.Status else 0


@dataclass(slots=True, eq=False)
class _Step:
    """A change of the balance."""

    since: datetime
    at: datetime
    #: (name, difference in minor units) of each amount that changed.
    differences: list[tuple[str, int]]
    available: int
    objects: list[_Moved] = field(default_factory=list)
    #: The ``objects`` that moved exactly one of the differences.
    exact: list[_Moved] = field(default_factory=list)
    #: True if all objects together moved one of the differences.
    is_sum: bool = False

    @property
    def amounts(self) -> set[int]:
        return {abs(difference) for _name, difference in self.differences}

    def is_explained_by(self, item: _Moved) -> bool:
        """Return True if the object moved exactly one of the differences, in the direction of its status."""
        available = dict(self.differences).get("available", 0)
        if abs(available) in item.sums:
            return available * item.direction >= 0
        return bool(item.sums & self.amounts)

    def moved_by(self, item: _Moved) -> int:
        """Return which sum of one of the ``exact`` objects is one of the differences."""
        return item.money if item.money in self.amounts else (item.sums & self.amounts).pop()


def changes_section(page: Page, balance: Balance) -> Iterable[Section]:
    """Yield a table of the newest changes of a balance, or of those before ``UNTIL``. Takes at most six statements."""
    found, until = changes_of(balance), time_in(page.request.GET.get(UNTIL, ""))
    if until is not None:
        found = found.filter(at__lte=until)
    changes = list(found.order_by("-at", "-pk")[: ROWS + 1])
    models = [model for model in _MODELS if page.may_view(model)]
    steps = [_step(change, previous) for change, previous in pairwise(changes)]
    moved, is_narrow = _moved(balance, steps, models)
    _assign(steps, moved)
    columns: list[StrOrPromise] = [_("At"), _("What changed"), _("Available afterwards")]
    if models:
        columns.append(_("Changed at the same time"))
    rows = [
        (
            format_html('<span class="nowrap">{}</span>', display.moment(step.at)),
            _differences(step.differences, balance.currency),
            display.money(step.available, balance.currency),
            *([_objects(page, step)] if models else []),
        )
        for step in steps
    ]
    title = _("What moved it")
    if until is not None:
        title += f" · {_('until %(time)s') % {'time': display.moment(until)}}"
    note = _note(is_narrow) if models else ""
    if len(changes) > ROWS:
        earlier = f"?{urlencode({UNTIL: changes[-1].at.isoformat()})}"
        note = format_html('{} <a href="{}">← {}</a>', note, earlier, _("Earlier"))
    yield Table(title, tuple(columns), rows, "", note)


def _note(is_narrow: bool) -> str:
    words = [
        _(
            "The provider does not say what changed a balance. Beside each change are the payments, payouts and "
            "refunds in this currency whose status changed after the previous change of the balance."
        )
    ]
    if is_narrow:
        words.append(_("There are many, so these are only the ones from the last minute before each change."))
    words.append(_("“Same amount” means that the balance changed by exactly this amount."))
    return " ".join(words)


def _step(change: BalanceChange, previous: BalanceChange) -> _Step:
    differences = [(name, getattr(change, name) - getattr(previous, name)) for name in AMOUNTS]
    known = [(name, difference) for name, difference in differences if difference]
    return _Step(previous.at, change.at, known, change.available)


def _moved(balance: Balance, steps: list[_Step], models: list[type[Any]]) -> tuple[list[_Moved], bool]:
    """Return the objects of the balance that changed in the time of the steps, newest first.

    The second value is True if some were left out. Both queries read a bounded part of the index on the time of status
    changes. With a condition on the account, a database could read the account's whole history instead.
    """
    if not steps or not models:
        return [], False
    changes = _status_changes(Q(at__gt=steps[-1].since - _TOGETHER, at__lte=steps[0].at + _TOGETHER), models)
    is_narrow = len(changes) > MAX_CHANGES
    if is_narrow:
        # This balance may have few changes among many of others, so look only near its own changes.
        close = Q()
        for step in steps:
            close |= Q(at__gt=max(step.since - _TOGETHER, step.at - _NARROW), at__lte=step.at + _TOGETHER)
        changes = _status_changes(close, models)
    ids: dict[str, set[str]] = defaultdict(set)
    for account, kind, object_id, _status, _at in changes:
        if account == balance.account:
            ids[kind].add(object_id)
    rows = {
        (kind, row.pk): row
        for model in models
        if (kind := str(model.kind)) in ids
        for row in model.objects.filter(pk__in=ids[kind], account=balance.account, currency=balance.currency).defer(
            *model.personal
        )
    }
    found = [
        _Moved(rows[kind, object_id], status, at)
        for account, kind, object_id, status, at in changes
        if account == balance.account and (kind, object_id) in rows
    ]
    return found, is_narrow


def _status_changes(wanted: Q, models: list[type[Any]]) -> list[tuple[str, str, str, str, datetime]]:
    rows = StatusChange.objects.filter(wanted, object_kind__in=[model.kind for model in models])
    rows = rows.exclude(object_kind=Payment.kind, status__in=_WITHOUT_MONEY).order_by("-at", "-pk")
    return list(rows.values_list("account", "object_kind", "object_id", "status", "at")[: MAX_CHANGES + 1])


def _assign(steps: list[_Step], moved: list[_Moved]) -> None:
    """Assign the objects to steps. An object that explains a step exactly may have changed just before or after it.

    In the order of time, a change of status explains the nearest step that no other one explains, so that payouts of
    one amount explain a step each. If there is none, it explains the nearest step. Money moves once in a direction, so
    a later change of the object in this direction explains no other step.
    """
    explained_by: dict[tuple[Any, int], _Step] = {}
    for item in reversed(moved):
        close = [step for step in steps if step.since - _TOGETHER < item.at <= step.at + _TOGETHER]
        exact = [step for step in close if step.is_explained_by(item)]
        free = [step for step in exact if not step.exact] or exact
        if free:
            nearest = min(free, key=lambda step: abs(item.at - step.at))
            step = explained_by.setdefault((item.row, item.direction), nearest)
            if step in exact:
                step.exact.append(item)
    for step in steps:
        step.exact = _first_of_each(sorted(step.exact, key=lambda item: abs(item.at - step.at)))
    explained = {item for step in steps for item in step.exact}
    for step in steps:
        between = [item for item in moved if step.since < item.at <= step.at and item not in explained]
        known = {item.row for item in step.exact}
        others = [item for item in _first_of_each(between) if item.row not in known]
        step.objects = step.exact + others
        step.is_sum = not step.exact and len(others) > 1 and sum(item.money for item in others) in step.amounts


def _first_of_each(found: Iterable[_Moved]) -> list[_Moved]:
    """Return the first change of each object."""
    firsts: dict[Any, _Moved] = {}
    for item in found:
        firsts.setdefault(item.row, item)
    return list(firsts.values())


def _differences(differences: Iterable[tuple[str, int]], currency: str) -> str:
    """Return the differences as HTML, for instance: available +CLP 15,990."""
    lines = (
        (AMOUNTS[name], "+" if difference > 0 else "−", display.money(abs(difference), currency))  # noqa: RUF001
        for name, difference in differences
    )
    return format_html_join(_BREAK, '<span class="nowrap">{} {}{}</span>', lines)


def _objects(page: Page, step: _Step) -> str:
    if not step.objects:
        return display.EMPTY
    lines = list(_lines(page, step))
    rest = len(step.objects) - OBJECTS
    if rest > 0:
        lines.append((_("and %(count)s more") % {"count": rest},))
    if step.is_sum:
        lines.append((_("Together the same amount"),))
    return format_html_join(_BREAK, "{}", lines)


def _lines(page: Page, step: _Step) -> Iterator[tuple[str]]:
    for item in step.objects[:OBJECTS]:
        row = item.row
        name = f"{row._meta.verbose_name} {getattr(row, 'merchant_reference', None) or row.pk}"
        line = format_html(
            '<span class="pi-moved">{} {} {}</span>',
            display.admin_link(page.site, type(row), row.pk, name),
            display.money(step.moved_by(item) if item in step.exact else item.money, row.currency),
            display.status(item.status, row.Status),
        )
        if item in step.exact:
            line = format_html('{} <span class="pi-less">{}</span>', line, _("same amount"))
        yield (line,)


@dataclass(frozen=True, slots=True)
class ChartSection(Section):
    """The newest changes, as a chart and a table."""

    template: ClassVar[str] = "admin/payments_backoffice/includes/chart_section.html"

    chart: Chart


def balance_chart(balance: Balance) -> Chart:
    """Return a chart of each amount over time: the newest changes, oldest first."""
    newest = changes_of(balance).order_by("-at", "-pk")[:CHART_CHANGES]
    changes = list(newest)[::-1]
    currency = balance.currency
    return Chart(
        id="pi-balance",
        title=_("%(currency)s: the balance over time") % {"currency": display.text(currency)},
        kind="steps",
        heading=_("At"),
        labels=tuple(display.moment(change.at) for change in changes),
        series=tuple(
            Series(
                label,
                tuple(getattr(change, name) for change in changes),
                tuple(format_money(getattr(change, name), currency) for change in changes),
                look,
            )
            for look, (name, label) in enumerate(AMOUNTS.items())
        ),
        decimals=exponent(currency),
        unit=currency,
        moments=tuple(int(change.at.timestamp() * 1000) for change in changes),
    )
