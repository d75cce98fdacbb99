"""Let payments proceed by themselves, for tests without a payer: one table of values, like test cards.

A payment whose ``payer.email``, ``merchant_reference`` or ``amount`` is in the table takes the row's steps. The page
and docs/sandbox.md show the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .catalog import Method
from .protocol import ApiError, Json

DOMAIN: Final = "sandbox.example"
TRANSFERS: Final = ("bank_transfer",)
CARDS: Final = ("card",)


@dataclass(frozen=True)
class Magic:
    """One row. ``steps`` holds seconds after the payment's creation, on the sandbox's clock, and what happens then.

    ``families`` holds the method families that can take these steps. Empty for all families.
    """

    name: str
    amount: int
    effect: str
    steps: tuple[tuple[float, str], ...]
    families: tuple[str, ...] = ()

    @property
    def email(self) -> str:
        """The e-mail that chooses this row, in any case."""
        return f"{self.name}@{DOMAIN}"

    @property
    def reference(self) -> str:
        """The prefix of the references that choose this row. A prefix, so that each reference can be unique."""
        return f"sandbox-{self.name}"


TABLE: Final = (
    Magic("paid", 99_000_001, "is paid after 3 seconds", ((3, "pay"),)),
    Magic("declined", 99_000_002, "fails after 3 seconds, with the reason declined", ((3, "fail"),)),
    Magic("expired", 99_000_003, "expires after 3 seconds", ((3, "expire"),)),
    Magic("late", 99_000_004, "expires after 3 seconds, and is paid after 60 seconds", ((3, "expire"), (60, "pay"))),
    Magic("partial", 99_000_005, "is paid in part after 3 seconds: half of it", ((3, "pay_half"),), TRANSFERS),
    Magic("overpaid", 99_000_006, "is paid twice after 3 seconds", ((3, "pay_double"),), TRANSFERS),
    Magic("held", 99_000_007, "is put on hold after 3 seconds, and paid after 60 seconds", ((3, "hold"), (60, "pay"))),
    Magic(
        "chargeback", 99_000_008, "is paid after 3 seconds, and charged back after 60 seconds",
        ((3, "pay"), (60, "chargeback")), CARDS,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A future step of a payment."""

    at: datetime
    action: str


def steps_of(payment: Json, method: Method, created_at: datetime) -> list[Step]:
    """Return the steps of a new payment, next first.

    Raises parameter_invalid if its method cannot take them, and amount_out_of_range if the amount has no half.
    """
    for row, param in _matches(payment):
        if row.families and method.family not in row.families:
            message = f"This is a value of the sandbox for {' and '.join(row.families)}: such a payment {row.effect}."
            raise ApiError("parameter_invalid", f"{message} {method.code} is {method.family}.", param=param)
        if row.steps[0][1] == "expire" and payment.get("flow") == "s2s" and method.next_action == "none":
            message = f"A payment by {method.code} is processing at once in this flow, and does not expire."
            raise ApiError("parameter_invalid", message, param=param)
        if row.name == "partial" and payment["amount"] < 2:
            raise ApiError("amount_out_of_range", "An amount of 1 has no half.", param="amount")
        return [Step(created_at + timedelta(seconds=seconds), action) for seconds, action in row.steps]
    return []


def _matches(payment: Json) -> Iterator[tuple[Magic, str]]:
    """Yield the rows that a payment's values choose, and the parameter: the e-mail, then the reference, the amount."""
    email = ((payment.get("payer") or {}).get("email") or "").lower()
    reference = payment.get("merchant_reference") or ""
    yield from ((row, "payer.email") for row in TABLE if email == row.email)
    yield from (
        (row, "merchant_reference")
        for row in TABLE
        if reference == row.reference or reference.startswith(f"{row.reference}-")
    )
    yield from ((row, "amount") for row in TABLE if payment["amount"] == row.amount)
