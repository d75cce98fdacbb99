"""The overview of an account: what needs a person, how much money moved, and the balances.

Each panel is shown to users who may see the rows that it counts, and links to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.db.models import Model
from django.utils.timezone import localtime
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration.admin.dashboard import orders, search, statistics
from payments_integration.admin.dashboard.account_page import (
    TECHNICAL,
    AccountPage,
    Tile,
    may_see_technical_state,
)
from payments_integration.admin.dashboard.concerns import CONCERNS, LIMIT
from payments_integration.admin.dashboard.money import MoneyPanels
from payments_integration.admin.dashboard.statistics import Statistics
from payments_integration.admin.lists.days import PERIOD
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import hidden
from payments_integration.health import Waiting
from payments_integration.models import AccountState, Balance, Operation, OperationState, Payment, Payout, Refund

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Statistics are counted only for users who may see one of these models.
_COUNTED_FOR: dict[str, tuple[type[Model], ...]] = {
    "health": TECHNICAL,
    "balances": (Balance,),
    "payments": (Payment,),
    "payouts": (Payout,),
    "refunds": (Refund,),
    "concerns": (Payment, Payout, Refund),
    "orders": (Payment,),
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
        """The context of the overview's template."""
        wanted = [name for name, models in _COUNTED_FOR.items() if any(map(self.sees, models))]
        if not self.account or not wanted:
            return {"empty": True, "account": self.account, "search_url": self._search_url()}
        found = statistics.gather(self.account, wanted)
        return {
            "account": self.account,
            "search_url": self._search_url(),
            "accounts": list(self._accounts()),
            "as_of": display.moment(found.as_of),
            "tiles": list(self._tiles(found)),
            "problems": list(self._problems(found)),
            "examined": found.health is not None,
            "technical_url": self._technical_url(),
            "last_month_url": self._last_month_url(),
            "amounts": _AMOUNTS,
            "hidden": self._hidden(),
            "balances": list(self._balances(found)),
            **MoneyPanels(found, self.link, self.sees).context(),
        }

    def _search_url(self) -> str:
        return search.url(self._site, self._request)

    def _technical_url(self) -> str:
        if not may_see_technical_state(self._site, self._request):
            return ""
        url = display.page_url(self._site, AccountState, "technical")
        return f"{url}?{urlencode(self._chosen())}" if url and self._several else url

    def _last_month_url(self) -> str:
        """The URL of the payments of the last calendar month, from where they are exported."""
        return self.link(Payment, **{PERIOD: "last-month"})

    def _hidden(self) -> list[StrOrPromise]:
        """What the overview leaves out for this user."""
        names = hidden(self._site, self._request, Payment, Refund, Payout, Balance, Operation)
        technical = hidden(self._site, self._request, *TECHNICAL)
        return [*names, _("technical state")] if set(technical) - set(names) else names

    def _tiles(self, found: Statistics) -> Iterator[Tile]:
        yield from self._operations(found)
        first_day = localtime(found.days.bounds[0]).date().isoformat()
        for concern in CONCERNS:
            if self.sees(concern.model):
                url = self.link(concern.model, **concern.filters(first_day))
                number = found.concerns[concern.name]
                yield Tile(concern.label, number, "", url, is_cut=number >= LIMIT)
        yield from orders.tiles(self._site, self._request, self.account, found.orders, self._chosen())

    def _operations(self, found: Statistics) -> Iterator[Tile]:
        if found.health is None or not self.sees(Operation):
            return
        operations = found.health.statistics.operations
        open_ones: tuple[tuple[StrOrPromise, Waiting, str], ...] = (
            (_("Operations that a person must decide"), operations.needs_person, OperationState.NEEDS_PERSON),
            (_("Operations that wait for approval"), operations.awaiting_approval, OperationState.AWAITING_APPROVAL),
            (_("Operations with an unknown outcome"), operations.unknown, OperationState.UNKNOWN),
        )
        for label, waiting, state in open_ones:
            age = display.duration(waiting.age_seconds) if waiting.count else ""
            yield Tile(label, waiting.count, age, self.link(Operation, state=str(state)))

    def _balances(self, found: Statistics) -> Iterator[tuple[str, list[tuple[StrOrPromise, str]]]]:
        """(link, the named amounts) of each currency."""
        for row in found.balances:
            amounts = (row.available, row.pending, row.reserve, row.hold, row.debt)
            shown = [display.money(amount, row.currency) for amount in amounts]
            link = display.admin_link(self._site, Balance, row.pk, row.currency)
            yield link, list(zip(_AMOUNTS, shown, strict=True))
