"""The monthly statement in the admin: the figures of the journal, as a page and as files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf
from payments_integration.admin.base import Crumb, ReadOnlyAdmin
from payments_integration.admin.lists.export import download
from payments_integration.admin.shared import display
from payments_integration.contrib.finance.formats import FORMATS, NotWritableError, csv_line
from payments_integration.contrib.finance.journal import EARLIEST, LATEST, Period, Statement, statements
from payments_integration.contrib.finance.models import MovementKind
from payments_integration.contrib.finance.movements import closes_at, local_date
from payments_integration.dates import in_words
from payments_integration.money import to_major

#: The value of ``file`` for the figures of the page, and the ends of the files' names.
FIGURES = "statement"
_SUFFIXES = {FIGURES: "csv", "csv": "csv", "beancount": "beancount", "hledger": "journal"}


class StatementForm(forms.Form):
    month = forms.DateField(
        label=gettext_lazy("Month"),
        help_text=gettext_lazy("Such as 2026-01"),
        input_formats=["%Y-%m"],
        validators=[MinValueValidator(EARLIEST), MaxValueValidator(LATEST)],
        widget=forms.DateInput(format="%Y-%m", attrs={"type": "month"}),
    )

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        aliases = conf.aliases()
        if len(aliases) > 1:
            choices = [("", gettext_lazy("all")), *((alias, alias) for alias in aliases)]
            self.fields["account"] = forms.ChoiceField(label=gettext_lazy("Account"), required=False, choices=choices)

    @property
    def period(self) -> Period:
        since: date = self.cleaned_data["month"]
        return Period(since, _next_month(since), self.cleaned_data.get("account") or None)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a statement."""

    #: The name in the file of figures; it is not translated.
    name: str
    label: str
    #: Minor units; None: not known.
    amount: int | None
    is_sum: bool = False


def figures(statement: Statement) -> Iterator[Figure]:
    """The lines of a statement. The opening balance and the lines up to the closing balance add up to it."""
    yield Figure("opening_balance", _("Opening balance"), statement.opening, is_sum=True)
    labels = dict(MovementKind.choices)
    for kind in MovementKind:
        if kind in statement.booked:
            yield Figure(kind.value, str(labels[kind]), statement.booked[kind])
    yield Figure("movements", _("In the journal of the month"), statement.total, is_sum=True)
    if statement.occurred_before:
        label = _("Of these, recorded later: already in the opening balance")
        yield Figure("occurred_before", label, -statement.occurred_before)
    if statement.recorded_after:
        label = _("Recorded later: in the journal of another month")
        yield Figure("recorded_after", label, statement.recorded_after)
    yield Figure("unexplained", _("Unexplained"), statement.unexplained)
    yield Figure("closing_balance", _("Closing balance"), statement.closing, is_sum=True)


class StatementPage:
    """GET: the statement of a month, by default the last one; with ``file``, the same figures as a file."""

    def __init__(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> None:
        self.admin = model_admin
        self.request = request

    def respond(self) -> HttpResponseBase:
        if self.request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        asked = self.request.GET
        form = StatementForm({"month": f"{_last_month():%Y-%m}", **asked.dict()})
        if not form.is_valid():
            return self._page(form, None)
        name = asked.get("file", "")
        if name not in _SUFFIXES:
            return self._page(form, form.period)
        try:
            return self._file(form.period, name)
        except NotWritableError as error:
            form.add_error(None, str(error))
            return self._page(form, form.period)

    def _file(self, period: Period, name: str) -> HttpResponseBase:
        lines = _figures_file(statements(period)) if name == FIGURES else FORMATS[name](period)
        # The first line is made here, so that a journal that cannot be written becomes a message.
        first = next(lines, "")
        filename = f"{'statement' if name == FIGURES else 'journal'}-{period.since:%Y-%m}.{_SUFFIXES[name]}"
        content_type = f"text/{'csv' if _SUFFIXES[name] == 'csv' else 'plain'}; charset=utf-8"
        return download(self.request, _joined(first, lines), filename, content_type)

    def _page(self, form: StatementForm, period: Period | None) -> HttpResponseBase:
        title = _("Monthly statement")
        context: dict[str, Any] = {"title": title, "form": form}
        if period is not None:
            found = statements(period)
            several = len({statement.account for statement in found} | {*conf.aliases()}) > 1
            context |= {
                "month": in_words(period.since, "YEAR_MONTH_FORMAT"),
                "sections": [_section(statement, several=several) for statement in found],
                "files": [(label, self._url(period, file=name)) for name, label in _files()],
                "previous_url": self._url(Period(_previous_month(period.since), period.since, period.account)),
                "next_url": self._url(Period(period.until, period.until, period.account)),
                "open_until": _open_until(period),
            }
        to_list: Crumb = (
            self.admin.visible_list_url(self.request),
            capfirst(str(self.admin.opts.verbose_name_plural)),
        )
        return self.admin.render_page(
            self.request, "admin/payments_finance/movement/statement.html", context, [to_list, ("", title)]
        )

    def _url(self, period: Period, **more: str) -> str:
        account = {"account": period.account} if period.account is not None else {}
        return f"?{urlencode({'month': f'{period.since:%Y-%m}', **account, **more})}"


def _section(statement: Statement, *, several: bool) -> dict[str, Any]:
    """``several``: whether there are several accounts, so that the heading names this one."""
    lines = [
        (figure.label, _shown(figure.amount, statement.currency), figure.is_sum, figure.name == "unexplained")
        for figure in figures(statement)
    ]
    return {
        "heading": display.text(f"{statement.account} {statement.currency}" if several else statement.currency),
        "lines": lines,
        "has_rest": bool(statement.unexplained),
    }


def _shown(amount: int | None, currency: str) -> str:
    return _("no balance known") if amount is None else display.money(amount, currency)


def _files() -> list[tuple[str, str]]:
    return [
        (FIGURES, _("These figures as CSV")),
        ("csv", _("Journal as CSV")),
        ("beancount", _("Journal for beancount")),
        ("hledger", _("Journal for hledger")),
    ]


def _figures_file(found: list[Statement]) -> Iterator[str]:
    yield csv_line(("account", "currency", "figure", "amount"))
    for statement in found:
        for figure in figures(statement):
            amount = "" if figure.amount is None else f"{to_major(figure.amount, statement.currency):f}"
            yield csv_line((statement.account, statement.currency, figure.name, amount))


def _joined(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _open_until(period: Period) -> str:
    """Until when movements may be added; empty if the month is closed."""
    closes = closes_at(period.until)
    return display.moment(closes) if timezone.now() < closes else ""


def _next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _previous_month(day: date) -> date:
    return (day.replace(day=1) - timedelta(days=1)).replace(day=1)


def _last_month() -> date:
    return _previous_month(local_date(timezone.now()))
