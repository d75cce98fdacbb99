"""Keep a project's money: one balance per currency, and an entry for every change to it ("Balance")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from .clock import Clock, iso
from .protocol import CURRENCIES, ApiError, Json

BUCKETS: Final = ("available", "pending", "reserve", "hold", "debt")


@dataclass(frozen=True)
class Entry:
    """One change to one balance, in minor units."""

    at: str
    currency: str
    reason: str
    object_id: str
    available: int = 0
    pending: int = 0
    reserve: int = 0
    hold: int = 0
    debt: int = 0

    @property
    def outside(self) -> int:
        """The change in what the merchant owns less what it owes: money from outside the sandbox."""
        return self.available + self.pending + self.reserve + self.hold - self.debt

    def wire(self) -> Json:
        """Return the entry as a dict."""
        return {**asdict(self), "outside": self.outside}


class Ledger:
    """Balances that change only through entries. Each change emits ``balance.updated``.

    Incoming money pays off debt first, so there is never debt and available money at the same time.
    """

    def __init__(self, clock: Clock, emit: Callable[[str, Json], None]) -> None:
        self._clock = clock
        self._emit = emit
        self.entries: list[Entry] = []
        self.balances: dict[str, Json] = {
            currency: {"object": "balance", "currency": currency, **dict.fromkeys(BUCKETS, 0)}
            for currency in CURRENCIES
        }

    def start_with(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """Add available money as if the project always had it: no event reports it. A negative amount removes it."""
        self._record(Entry(iso(self._clock.now()), currency, reason, object_id, available=amount))

    def available(self, currency: str) -> int:
        """Return the money that can be paid out, in minor units."""
        return int(self.balances[currency]["available"])

    def debt(self, currency: str) -> int:
        """Return the debt after chargebacks, in minor units. Above zero, it blocks payouts and refunds."""
        return int(self.balances[currency]["debt"])

    def check_funds(self, currency: str, needed: int) -> None:
        """Raise insufficient_balance if there is a debt or less than this is available."""
        problem = ""
        if self.debt(currency) > 0:
            problem = f"There is a debt in {currency}; it blocks payouts and refunds."
        elif self.available(currency) < needed:
            problem = f"The available {currency} balance is lower than amount plus fee."
        if problem:
            raise ApiError("insufficient_balance", problem, param="amount")

    def credit(
        self, currency: str, amount: int, reason: str, object_id: str, *, from_hold: int = 0, from_pending: int = 0
    ) -> None:
        """Pay off debt and make the rest available: new money, or money from hold or pending."""
        repaid = min(self.debt(currency), amount)
        self._post(
            currency, reason, object_id,
            available=amount - repaid, debt=-repaid, hold=-from_hold, pending=-from_pending,
        )  # fmt: skip

    def add_pending(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """Add new money to pending. A negative amount removes it."""
        self._post(currency, reason, object_id, pending=amount)

    def place_hold(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """Move available money to hold. The caller has checked that it is available."""
        self._post(currency, reason, object_id, available=-amount, hold=amount)

    def spend_hold(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """Pay money out of hold."""
        self._post(currency, reason, object_id, hold=-amount)

    def set_reserve(self, currency: str, amount: int, object_id: str) -> None:
        """Set the reserve to this amount. The difference comes from available money, or goes to it after any debt."""
        change = amount - int(self.balances[currency]["reserve"])
        if change < 0:
            repaid = min(self.debt(currency), -change)
            self._post(currency, "reserve", object_id, reserve=change, available=-change - repaid, debt=-repaid)
        elif change > 0:
            self._post(currency, "reserve", object_id, reserve=change, available=-change)

    def charge_back(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """Take the amount from the reserve, then from available money. The rest becomes debt."""
        from_reserve = min(int(self.balances[currency]["reserve"]), amount)
        from_available = min(self.available(currency), amount - from_reserve)
        self._post(
            currency, reason, object_id,
            reserve=-from_reserve, available=-from_available, debt=amount - from_reserve - from_available,
        )  # fmt: skip

    def _post(self, currency: str, reason: str, object_id: str, **changes: int) -> None:
        if not any(changes.values()):
            return
        balance = self.balances[currency]
        for bucket, change in changes.items():
            if balance[bucket] + change < 0:
                raise AssertionError(f"{currency} {bucket} would fall below zero: {reason} {object_id}")
        entry = Entry(iso(self._clock.now()), currency, reason, object_id, **changes)
        self._record(entry)
        balance["updated_at"] = entry.at
        self._emit("balance.updated", balance)

    def _record(self, entry: Entry) -> None:
        self.entries.append(entry)
        for bucket in BUCKETS:
            self.balances[entry.currency][bucket] += getattr(entry, bucket)
