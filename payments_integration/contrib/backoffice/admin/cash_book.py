"""Show the cash book: the changes of the money by day and currency, from the opening to the closing balance.

The page and its files have the figures of ``contrib.finance``. A movement counts on its day in the journal, which is
the day when the money moved, unless that month was closed. Each figure links to its movements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed, QueryDict
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf
from payments_integration.admin.base import Crumb, ReadOnlyAdmin
from payments_integration.admin.lists.filters import SEPARATOR
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import Tool, may_view
from payments_integration.contrib.backoffice.admin import export
from payments_integration.contrib.backoffice.admin.days import FROM, LAST_YEAR, PERIOD, PERIODS, TO, UNTIL, DaysForm
from payments_integration.contrib.backoffice.admin.downloads import download
from payments_integration.contrib.backoffice.admin.lists import FORMAT
from payments_integration.contrib.finance.balances import Amounts
from payments_integration.contrib.finance.formats import FORMATS, NotWritableError
from payments_integration.contrib.finance.journal import (
    MOST_DAYS,
    Period,
    Statement,
    month_after,
    statements,
    statements_of,
    steps,
    together,
    unstored,
)
from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.contrib.finance.movements import closes_at
from payments_integration.dates import in_words, start_of, today
from payments_integration.enums import Currency
from payments_integration.models import Balance
from payments_integration.money import format_amount, to_major
from payments_integration.validation.text import StrOrPromise

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite

#: The query parameter with the format of a journal.
JOURNAL = "journal"
#: The period of an address without one.
_USUAL = "this-month"
_MOST_YEARS = 10
_DAY = timedelta(days=1)
_SUFFIXES = {"csv": "csv", "beancount": "beancount", "hledger": "journal"}

#: The columns of movements: their names in files, and the kinds that they add up.
_COLUMNS: tuple[tuple[str, StrOrPromise, tuple[MovementKind, ...]], ...] = (
    ("received", gettext_lazy("Received"), (MovementKind.PAYMENT,)),
    ("fees", gettext_lazy("Fees"), (MovementKind.PAYMENT_FEE, MovementKind.PAYOUT_FEE)),
    ("refunded", gettext_lazy("Refunded"), (MovementKind.REFUND,)),
    ("charged_back", gettext_lazy("Charged back"), (MovementKind.CHARGEBACK,)),
    ("paid_out", gettext_lazy("Paid out"), (MovementKind.PAYOUT,)),
)
_HEADINGS = (
    "from", "to", "account", "currency", "opening_balance", *(name for name, _label, _kinds in _COLUMNS),
    "other_months", "unexplained", "closing_balance",
)  # fmt: skip


def url(site: AdminSite, **query: str) -> str:
    """Return the address of the cash book, or "" if it has none."""
    found = display.page_url(site, Movement, "cash-book")
    return f"{found}?{urlencode(query)}" if found and query else found


def may_see(site: AdminSite, request: HttpRequest) -> bool:
    """Return True if the user may see the cash book, which shows movements and balances."""
    return may_view(site, request, Movement) and may_view(site, request, Balance)


class CashBookForm(DaysForm):
    """The choice of days, currency and, with several accounts, the account."""

    def __init__(self, data: dict[str, Any], currencies: set[str]) -> None:
        super().__init__("", data)
        if len(conf.aliases()) > 1 or data.get("account"):
            accounts = [("", gettext_lazy("all")), *conf.account_choices()]
            self.fields["account"] = forms.ChoiceField(label=gettext_lazy("Account"), required=False, choices=accounts)
        # The mirror keeps balances in currencies that this version does not know.
        known = [*Currency.values, *sorted(currencies - set(Currency.values))]
        choices = [("", gettext_lazy("all")), *((code, display.text(code)) for code in known)]
        self.fields["currency"] = forms.ChoiceField(label=gettext_lazy("Currency"), required=False, choices=choices)
        for name in (FROM, TO):
            self.fields[name].required = True

    def clean(self) -> dict[str, Any]:
        found = super().clean()
        first, last = found[FROM], found[TO]
        if first and last and last - first > _MOST_YEARS * 366 * _DAY:
            self.add_error(TO, _("Choose at most %(count)s years.") % {"count": _MOST_YEARS})
        return found

    @property
    def period(self) -> Period:
        found = self.cleaned_data
        return Period(found[FROM], found[TO] + _DAY, found.get("account") or None, found["currency"] or None)


@dataclass(frozen=True, slots=True)
class Part:
    """An amount, with the address of its movements."""

    amount: str
    url: str = ""
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    heading: StrOrPromise
    #: Empty if nothing moved.
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Line:
    """A currency in the whole period, or in one day of it."""

    label: str
    url: str
    cells: list[Cell]


class CashBookPage:
    """The cash book of a period, as a page and as files."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        self._admin = model_admin
        self._site = model_admin.admin_site
        self._request = request
        #: The keys of balances by account and currency.
        self._balances: dict[tuple[str, str], int] = {}

    def respond(self) -> HttpResponseBase:
        if not may_see(self._site, self._request):
            raise PermissionDenied
        if self._request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        asked = self._request.GET
        self._balances = {(row.account, row.currency): row.pk for row in Balance.objects.only("account", "currency")}
        form = CashBookForm(_chosen(asked), {currency for _account, currency in self._balances})
        if not form.is_valid():
            return self._page(form, None)
        if asked.get(JOURNAL):
            return self._journal(form, asked[JOURNAL])
        if FORMAT in asked:
            return self._file(form, asked[FORMAT])
        return self._page(form, form.period)

    # Files

    def _journal(self, form: CashBookForm, name: str) -> HttpResponseBase:
        if name not in FORMATS:
            raise SuspiciousOperation("an unknown format")
        period = form.period
        lines = FORMATS[name](period)
        try:
            # Make the first line here, so that the page can show a message if the journal cannot be written.
            first = next(lines, "")
        except NotWritableError as error:
            form.add_error(None, str(error))
            return self._page(form, period)
        filename = f"journal-{'-to-'.join(_dates(period).values())}.{_SUFFIXES[name]}"
        content_type = f"text/{'csv' if name == 'csv' else 'plain'}; charset=utf-8"
        return download(self._request, _joined(first, lines), filename, content_type)

    def _file(self, form: CashBookForm, chosen: str) -> HttpResponseBase:
        written = export.dialect(chosen)
        if written is None and chosen != export.XLSX:
            raise SuspiciousOperation("an unknown format")
        period = form.period
        rows = [list(_rows(period, form.cleaned_data["currency"]))]
        filename = f"cash-book-{'-to-'.join(_dates(period).values())}"
        if written is not None:
            return export.csv_response(self._request, list(_HEADINGS), rows, filename, written)
        if not export.has_xlsx():
            needs = _('For Excel files, install the extra "xlsx": pip install "payments-integration[xlsx]".')
            form.add_error(None, needs)
            return self._page(form, period)
        from payments_integration.contrib.backoffice.admin import xlsx  # noqa: PLC0415

        return xlsx.xlsx_response(self._request, list(_HEADINGS), rows, filename)

    # The page

    def _page(self, form: CashBookForm, period: Period | None) -> HttpResponseBase:
        title = _("Cash book")
        context: dict[str, Any] = {"title": title, "form": form, "periods": list(self._periods(form))}
        if period is not None:
            context |= self._book(period, form.cleaned_data["currency"])
        to_list: Crumb = (
            self._admin.visible_list_url(self._request),
            capfirst(str(self._admin.opts.verbose_name_plural)),
        )
        return self._admin.render_page(
            self._request, "admin/payments_backoffice/cash_book.html", context, [to_list, ("", title)]
        )

    def _periods(self, form: CashBookForm) -> Iterator[tuple[StrOrPromise, str, bool]]:
        """Yield (words, address, is chosen) of each period that a click chooses."""
        shown = (form.data.get(FROM), form.data.get(TO))
        kept = {name: form.data[name] for name in ("account", "currency") if form.data.get(name)}
        for name, (label, bounds) in PERIODS.items():
            first, last = bounds(today())
            is_chosen = shown == (first.isoformat(), last.isoformat())
            yield label, f"?{urlencode({PERIOD: name, **kept})}", is_chosen

    def _book(self, period: Period, currency: str) -> dict[str, Any]:
        each = _wanted(statements(period), currency)
        sums = together(each)
        periods = steps(period)
        days = [together(_wanted(of_step, currency)) for of_step in statements_of(periods)] if len(periods) > 1 else []
        by_month = _is_month(period) or self._is_this_month(period)
        # Leave out this column if it is empty, which it almost always is.
        has_late = any(one.has_late for of_step in [sums, *days] for one in of_step)
        headings = [_("Opening balance"), *(label for _name, label, _kinds in _COLUMNS)]
        headings += [*([_("Other months")] if has_late else []), _("Unexplained"), _("Closing balance")]

        def line(label: str, url: str, step: Period, one: Statement) -> Line:
            return Line(
                label,
                url,
                [
                    Cell(heading, parts)
                    for heading, parts in zip(headings, self._amounts(step, one, has_late=has_late), strict=True)
                ],
            )

        kept = QueryDict(mutable=True)
        kept.update({**_dates(period), **_kept(period, currency)})
        return {
            "period": _in_words(period),
            "headings": headings,
            "by_currency": [line(one.currency, self._balance_url(period, one), period, one) for one in sums],
            "sections": [
                (
                    one.currency,
                    [
                        line(_in_words(step), self._address(step, one.currency), step, found)
                        for step, of_step in zip(periods, days, strict=True)
                        for found in of_step
                        if found.currency == one.currency and found.has_moved
                    ],
                )
                for one in sums
                if days
            ],
            "first_heading": _("Day") if (period.until - period.since).days <= MOST_DAYS else _("Month"),
            "has_late": has_late,
            "has_rest": any(one.unexplained for one in sums),
            "names_accounts": len({one.account for one in each} | {*conf.aliases()}) > 1,
            "balances": [self._sum(one) for one in each if one.after is not None],
            "tools": [Tool(_("Export"), "", post=False, form=export.ExportForm(FORMAT, kept))],
            "journals": [
                (name, f"?{urlencode({**_dates(period), **_kept(period, currency), JOURNAL: name})}")
                for name in FORMATS
            ],
            "earlier_url": self._address(_earlier(period, by_month), currency),
            "later_url": self._address(later, currency) if (later := _later(period, by_month)) else "",
            "open_until": (open_until := _open_until(period)),
            "is_stored": not open_until and not unstored(period).exists(),
        }

    def _is_this_month(self, period: Period) -> bool:
        """Return True for this month until today. On its first day, this day alone looks the same."""
        asked, last = self._request.GET, period.until - _DAY
        is_named = FROM not in asked and TO not in asked and asked.get(PERIOD, "") in ("", _USUAL)
        return last == today() and period.since == last.replace(day=1) and (period.since != last or is_named)

    def _amounts(self, step: Period, one: Statement, *, has_late: bool) -> Iterator[list[Part]]:
        """Yield the parts of each column of a line. A column without movements has none."""
        yield [self._figure(one.opening, one)]
        for _name, _label, kinds in _COLUMNS:
            amount = _sum_of(one, kinds)
            url = self._movements(one, step, kind=SEPARATOR.join(kinds))
            yield [self._figure(amount, one, url)] if any(one.booked.get(kind) for kind in kinds) else []
        if has_late:
            # The balance already contains the first amount, and the book of a later month has the second.
            before = {**_dates(step), "occurred_to": (step.since - _DAY).isoformat()}
            after = {FROM: step.until.isoformat(), **{f"occurred_{name}": day for name, day in _dates(step).items()}}
            yield [
                self._figure(amount, one, self._movements(one, step, **days))
                for amount, days in ((-one.occurred_before, before), (one.recorded_after, after))
                if amount
            ]
        url = self._balance_url(step, one) if one.unexplained else ""
        yield [self._figure(one.unexplained, one, url)] if one.unexplained != 0 else []
        yield [self._figure(one.closing, one)]

    def _figure(self, amount: int | None, one: Statement, url: str = "") -> Part:
        """Return an amount without its currency, which its row names."""
        if amount is None:
            return Part(_("not known"), is_known=False)
        return Part(display.text(format_amount(amount, one.currency)), url)

    def _sum(self, one: Statement) -> tuple[str, str, str, list[tuple[StrOrPromise, str]]]:
        """Return (account, currency, address of the balance, named amounts) of the provider's balance at the end."""
        after = one.after or Amounts(0, 0, 0, 0, 0)
        amounts = zip(_BALANCE, (*after, after.total), strict=True)
        shown = [(label, display.text(format_amount(amount, one.currency))) for label, amount in amounts]
        url = self._balance_url(Period(today(), today() + _DAY, one.account), one)
        return conf.account_name(one.account), display.text(one.currency), url, shown

    def _balance_url(self, period: Period, one: Statement) -> str:
        """Return the address of the balance that a line is about, as of its last day; "" if it is about several."""
        keys = [
            pk
            for (account, code), pk in self._balances.items()
            if code == one.currency and (period.account or account) == account
        ]
        url = display.change_url(self._site, Balance, keys[0]) if len(keys) == 1 else ""
        end = start_of(period.until)
        return f"{url}?{urlencode({UNTIL: end.isoformat()})}" if url and end <= timezone.now() else url

    def _movements(self, one: Statement, step: Period, **filters: str) -> str:
        """Return the address of the list of movements."""
        query = {**_dates(step), **_kept(step, one.currency), **filters}
        if "occurred_from" in filters:
            del query[TO]
        return f"{display.list_url(self._site, Movement)}?{urlencode(query)}"

    def _address(self, period: Period, currency: str) -> str:
        return f"?{urlencode({**_dates(period), **_kept(period, currency)})}"


#: The parts of a balance and their sum.
_BALANCE: tuple[StrOrPromise, ...] = (
    gettext_lazy("Available"), gettext_lazy("+ Pending"), gettext_lazy("+ Reserve"), gettext_lazy("+ Hold"),
    gettext_lazy("− Debt"), gettext_lazy("= Closing balance"),  # noqa: RUF001
)  # fmt: skip


def _chosen(asked: QueryDict) -> dict[str, Any]:
    """Return the form's data. Dates replace a period, so that the form narrows the period of a link."""
    given = {name: value for name, value in asked.items() if name in (FROM, TO, "account", "currency")}
    name = asked.get(PERIOD, "")
    if FROM in given or TO in given or name not in ("", *PERIODS):
        return {**given, PERIOD: name if FROM not in given else ""}
    first, last = PERIODS[name or _USUAL][1](today())
    return {**given, FROM: first.isoformat(), TO: last.isoformat()}


def _wanted(found: Iterable[Statement], currency: str) -> list[Statement]:
    """Return the statements of one currency or of all, without statements that have no money at all."""
    return [one for one in found if currency in ("", one.currency) and (one.has_moved or one.opening or one.closing)]


def _sum_of(one: Statement, kinds: Iterable[MovementKind]) -> int:
    return sum(one.booked.get(kind, 0) for kind in kinds)


def _rows(period: Period, currency: str) -> Iterator[list[export.Value]]:
    """Yield a row for each day, account and currency."""
    periods = steps(period)
    known = {(one.account, one.currency) for one in _wanted(statements(period), currency)}
    for step, found in zip(periods, statements_of(periods), strict=True):
        for one in found:
            if (one.account, one.currency) in known:
                amounts = (
                    one.opening, *(_sum_of(one, kinds) for _name, _label, kinds in _COLUMNS), one.elsewhere,
                    one.unexplained, one.closing,
                )  # fmt: skip
                yield [
                    step.since,
                    step.until - _DAY,
                    export.cell(one.account),
                    export.cell(one.currency),
                    *("" if amount is None else to_major(amount, one.currency) for amount in amounts),
                ]


def _dates(period: Period) -> dict[str, str]:
    return {FROM: period.since.isoformat(), TO: (period.until - _DAY).isoformat()}


def _kept(period: Period, currency: str) -> dict[str, str]:
    account = {"account": period.account} if period.account is not None else {}
    return {**account, **({"currency": currency} if currency else {})}


def _in_words(period: Period) -> str:
    last = period.until - _DAY
    if period.since == last:
        return in_words(last, "DATE_FORMAT")
    if _is_month(period):
        return in_words(last, "YEAR_MONTH_FORMAT")
    words = _("%(first)s to %(last)s")
    return words % {"first": in_words(period.since, "DATE_FORMAT"), "last": in_words(last, "DATE_FORMAT")}


def _is_month(period: Period) -> bool:
    return period.since.day == 1 and period.until == month_after(period.since)


def _earlier(period: Period, by_month: bool) -> Period:
    """Return the period of the same length before, or the month before a month."""
    if by_month:
        return replace(period, since=(period.since - _DAY).replace(day=1), until=period.since)
    return replace(period, since=period.since - (period.until - period.since), until=period.since)


def _later(period: Period, by_month: bool) -> Period | None:
    """Return the period after; None if the form would not take it."""
    if period.until > date(LAST_YEAR + 1, 1, 1) - (period.until - period.since):
        return None
    if by_month:
        since = month_after(period.since)
        return replace(period, since=since, until=month_after(since))
    return replace(period, since=period.until, until=period.until + (period.until - period.since))


def _open_until(period: Period) -> str:
    """Return the time until which movements may be added, or "" if the months are closed."""
    closes = closes_at(period.until)
    return display.moment(closes) if timezone.now() < closes else ""


def _joined(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
