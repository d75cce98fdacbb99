"""Show the overview of an account: the head of the to-do list, today's money, a month of money, and the balances.

Each panel is shown to users who may see the rows that it counts, and links to these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.db.models import Model
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import hidden
from payments_integration.admin.technical import setup
from payments_integration.admin.technical.account_page import (
    TECHNICAL,
    AccountPage,
    may_see_technical_state,
    technical_url,
)
from payments_integration.contrib.backoffice.admin import cash_book
from payments_integration.contrib.backoffice.admin.days import PERIOD, PERIODS
from payments_integration.contrib.backoffice.admin.overview import statistics, todo_rows
from payments_integration.contrib.backoffice.admin.overview.money import CURRENCY, MoneyPanels
from payments_integration.contrib.backoffice.admin.overview.statistics import Statistics
from payments_integration.contrib.finance.models import Movement
from payments_integration.models import Balance, Operation, Payment, Payout, Refund
from payments_integration.validation.text import StrOrPromise

#: Each statistic is counted only for users who may see one of its models.
_COUNTED_FOR: dict[str, tuple[type[Model], ...]] = {
    "health": (*todo_rows.REPAIRED_BY, Payment, Payout, Refund, Operation),
    "balances": (Balance,),
    "payments": (Payment,),
    "money_out": (Payout, Refund),
    "movements": (Movement, Payment, Payout, Refund),
    "differences": (Payment,),
}

#: The headings of a balance's amounts.
_AMOUNTS: tuple[StrOrPromise, ...] = (
    gettext_lazy("Available"),
    gettext_lazy("Pending"),
    gettext_lazy("Reserve"),
    gettext_lazy("Hold"),
    gettext_lazy("Debt"),
)


class Dashboard(AccountPage):
    """The overview of one account, as one user sees it."""

    def context(self) -> dict[str, Any]:
        """Return the context of the overview's template."""
        wanted = [name for name, models in _COUNTED_FOR.items() if any(map(self.sees, models))]
        if not self.account or not (wanted or self.sees(Operation)):
            return {"empty": True, "account": self.account}
        found = statistics.gather(self.account, wanted)
        money = MoneyPanels(found, self.link, self._book, self.sees).context(self._request.GET.get(CURRENCY, ""))
        # Also money that the user may not see: the installation is not new then.
        has_money = money["currencies"] or found.movements
        return {
            "account": self.account,
            "accounts": list(self._accounts()),
            "as_of": display.moment(found.as_of),
            "technical_url": self._technical_url(),
            "hidden": self._hidden(),
            **self._state(found, is_empty=self.sees(Payment) and not (has_money or found.balances)),
            **todo_rows.head(self._site, self._request, found.differences),
            "last_month_url": self._last_month_url(),
            "cash_books": list(self._cash_books()),
            "lists": list(self._lists()),
            "chosen": urlencode(self._chosen()),
            "amounts": _AMOUNTS,
            "balances": list(self._balances(found)),
            **money,
        }

    def _state(self, found: Statistics, *, is_empty: bool) -> dict[str, Any]:
        """Return the technical problems, and the steps of a new installation.

        ``is_fresh`` is True if the installation has no data yet, so that the page shows only the steps.
        """
        report = found.health
        if report is None or not any(map(self.sees, todo_rows.REPAIRED_BY)):
            outages = todo_rows.problems(self, report) if report is not None else []
            return {"steps": [], "is_fresh": False, "problems": outages, "examined": False}
        steps = setup.steps(self._site, self._request, self.account, report, is_empty=is_empty)
        if steps:
            self.in_tiles |= setup.STEPS
        return {
            "steps": steps,
            "is_fresh": bool(steps) and is_empty,
            "problems": todo_rows.problems(self, report),
            "examined": True,
        }

    def _technical_url(self) -> str:
        if not may_see_technical_state(self._site, self._request):
            return ""
        url = technical_url(self._site)
        return f"{url}?{urlencode(self._chosen())}" if url and self._several else url

    def _last_month_url(self) -> str:
        """Return the URL of the payments that were paid in the last calendar month. Users export them there."""
        return self.link(Payment, **{f"succeeded_{PERIOD}": "last-month"})

    def _cash_books(self) -> Iterator[tuple[StrOrPromise, str]]:
        """Yield (period, URL) of the most used cash books."""
        for name in ("yesterday", "this-month", "last-month"):
            if book := self._book(name):
                yield PERIODS[name][0], book

    def _lists(self) -> Iterator[tuple[str, str]]:
        for model in (Payment, Refund, Payout):
            if listed := self.link(model):
                yield capfirst(str(model._meta.verbose_name_plural)), listed

    def _book(self, period: str) -> str:
        """Return the URL of the cash book of a period, or "" if the user may not see it."""
        if not cash_book.may_see(self._site, self._request):
            return ""
        return cash_book.url(self._site, **{PERIOD: period, **self._chosen()})

    def _hidden(self) -> list[StrOrPromise]:
        """Return the names of the parts that the overview leaves out for this user."""
        names = hidden(self._site, self._request, Payment, Refund, Payout, Balance, Operation)
        technical = hidden(self._site, self._request, *TECHNICAL)
        return [*names, _("technical state")] if set(technical) - set(names) else names

    def _balances(self, found: Statistics) -> Iterator[tuple[str, list[tuple[StrOrPromise, str]]]]:
        """Yield (link, named amounts) of each currency."""
        for row in found.balances:
            amounts = (row.available, row.pending, row.reserve, row.hold, row.debt)
            shown = [display.money(amount, row.currency) for amount in amounts]
            link = display.admin_link(self._site, Balance, row.pk, row.currency)
            yield link, list(zip(_AMOUNTS, shown, strict=True))
