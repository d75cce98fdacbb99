"""A project's money: one balance per currency, and an entry for every change of it ("Balance")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from .clock import Clock
from .shapes import CURRENCIES, Wire, iso

BUCKETS: Final = ("available", "pending", "reserve", "hold", "debt")


@dataclass(frozen=True)
class Entry:
    """One change of one balance, in minor units; ``outside`` is what it brought into (or took out of) the sandbox."""

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
        """What the merchant is worth more by this entry: what it owns, less what it owes."""
        return self.available + self.pending + self.reserve + self.hold - self.debt

    def wire(self) -> Wire:
        """The entry as a plain dict, for the books."""
        return {**asdict(self), "outside": self.outside}


class Ledger:
    """Balances that only ever change through entries; each change emits ``balance.updated``.

    Money that comes in pays off debt first, so there is never debt and available money at once.
    """

    def __init__(self, clock: Clock, emit: Callable[[str, Wire], object]) -> None:
        self._clock = clock
        self._emit = emit
        self.entries: list[Entry] = []
        self.balances: dict[str, Wire] = {
            currency: {"object": "balance", "currency": currency, **dict.fromkeys(BUCKETS, 0)}
            for currency in CURRENCIES
        }

    def available(self, currency: str) -> int:
        """What can be paid out, in minor units."""
        return int(self.balances[currency]["available"])

    def debt(self, currency: str) -> int:
        """What is owed after chargebacks; payouts and refunds are blocked while it is above zero."""
        return int(self.balances[currency]["debt"])

    def credit(
        self,
        currency: str,
        amount: int,
        reason: str,
        object_id: str,
        *,
        from_hold: int = 0,
        from_pending: int = 0,
    ) -> None:
        """Money becomes available, new or out of hold or pending; what is owed is paid off first."""
        repaid = min(self.debt(currency), amount)
        self._post(
            currency, reason, object_id,
            available=amount - repaid, debt=-repaid, hold=-from_hold, pending=-from_pending,
        )  # fmt: skip

    def await_settlement(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """Put new money under pending; a negative amount takes it away again."""
        self._post(currency, reason, object_id, pending=amount)

    def block(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """Move available money into hold. The caller has checked that it is there."""
        self._post(currency, reason, object_id, available=-amount, hold=amount)

    def spend_hold(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """Money in hold leaves for good."""
        self._post(currency, reason, object_id, hold=-amount)

    def set_reserve(self, currency: str, amount: int, object_id: str) -> None:
        """Make the reserve this large, out of available money or back into it."""
        change = amount - int(self.balances[currency]["reserve"])
        if change < 0:
            repaid = min(self.debt(currency), -change)
            self._post(currency, "reserve", object_id, reserve=change, available=-change - repaid, debt=-repaid)
        elif change > 0:
            self._post(currency, "reserve", object_id, reserve=change, available=-change)

    def take_back(self, currency: str, amount: int, reason: str, object_id: str) -> None:
        """A chargeback: out of the reserve, then out of available money, and the rest is owed."""
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
        entry = Entry(iso(self._clock.stamp()), currency, reason, object_id, **changes)
        self.entries.append(entry)
        for bucket, change in changes.items():
            balance[bucket] += change
        balance["updated_at"] = entry.at
        self._emit("balance.updated", balance)
