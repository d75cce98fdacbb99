"""Define the kinds of money of the overview, in the order of the page. The cash book has the same kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import Model
from django.utils.translation import gettext_lazy

from payments_integration.admin.lists.filters import SEPARATOR
from payments_integration.contrib.backoffice.admin.overview.statistics import Group
from payments_integration.contrib.finance.models import Movement, MovementKind
from payments_integration.models import Payment, Payout, Refund
from payments_integration.validation.text import StrOrPromise


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of money: the kinds of its movements, and the sign that makes money that goes out positive."""

    label: StrOrPromise
    kinds: tuple[MovementKind, ...]
    sign: int = -1
    #: The number of its look in dashboard.js; None if it is in no chart.
    look: int | None = None

    @property
    def filters(self) -> dict[str, str]:
        """The filters of the list of its movements."""
        return {"kind": SEPARATOR.join(self.kinds)}

    def amount(self, group: Group) -> int:
        return self.sign * group.amount


RECEIVED = Kind(gettext_lazy("Received"), (MovementKind.PAYMENT,), sign=1, look=0)
FEES = Kind(gettext_lazy("Fees"), (MovementKind.PAYMENT_FEE, MovementKind.PAYOUT_FEE), look=5)
#: The received money, less the fees.
NET = Kind(gettext_lazy("Net"), (*RECEIVED.kinds, *FEES.kinds), sign=1)
REFUNDED = Kind(gettext_lazy("Refunded"), (MovementKind.REFUND,), look=3)
CHARGED_BACK = Kind(gettext_lazy("Charged back"), (MovementKind.CHARGEBACK,), look=6)
PAID_OUT = Kind(gettext_lazy("Paid out"), (MovementKind.PAYOUT,), look=2)
KINDS = (RECEIVED, FEES, NET, REFUNDED, CHARGED_BACK, PAID_OUT)

#: The movements that the rows of each model cause.
_MOVED_BY: dict[type[Model], tuple[MovementKind, ...]] = {
    Payment: (MovementKind.PAYMENT, MovementKind.PAYMENT_FEE, MovementKind.CHARGEBACK),
    Refund: (MovementKind.REFUND,),
    Payout: (MovementKind.PAYOUT, MovementKind.PAYOUT_FEE),
}


def seen_movements(sees: Callable[[type[Model]], bool]) -> frozenset[str]:
    """Return the kinds of the movements that a user may see: all, or the kinds of rows that the user may see."""
    if sees(Movement):
        return frozenset(MovementKind)
    return frozenset(kind for model, moved in _MOVED_BY.items() if sees(model) for kind in moved)


def shown(seen: frozenset[str]) -> list[Kind]:
    """Return the kinds of money that the page shows. Net is left out if a part of it may not be seen."""
    return [kind for kind in KINDS if (seen.issuperset if kind is NET else seen.intersection)(kind.kinds)]
