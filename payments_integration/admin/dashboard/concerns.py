"""What a finance person looks at first: chargebacks, payments on hold, and refunds and payouts that came to nothing.

One statement counts them all, each over an index and at most a thousand rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import Count, F, IntegerField, QuerySet
from django.utils.translation import gettext_lazy

from payments_integration.admin.lists.filters import SEPARATOR
from payments_integration.admin.lists.since import SINCE, since
from payments_integration.enums import PaymentStatus, PayoutStatus, RefundStatus
from payments_integration.health.statistics import SlicedAggregate
from payments_integration.models import AccountState, Payment, Payout, Refund

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Counts stop here.
LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Concern:
    """Rows with a status that a person looks at."""

    name: str
    label: StrOrPromise
    model: type[Payment] | type[Payout] | type[Refund]
    statuses: tuple[str, ...]
    #: Whether only a status that began within the days of the statistics counts, because it never ends.
    is_final: bool = True

    def filters(self, first_day: str) -> dict[str, str]:
        """The filters of the list with its rows."""
        return {"status": SEPARATOR.join(self.statuses), **({SINCE: first_day} if self.is_final else {})}

    def rows(self, account: str, at: datetime) -> QuerySet[Any]:
        found: QuerySet[Any] = self.model._default_manager.filter(account=account, status__in=self.statuses)
        return since(found, at) if self.is_final else found


CONCERNS: tuple[Concern, ...] = (
    Concern(
        "chargebacks", gettext_lazy("Chargebacks in the last 30 days"), Payment, (PaymentStatus.CHARGEBACK.value,)
    ),
    Concern("on_hold", gettext_lazy("Payments on hold"), Payment, (PaymentStatus.ON_HOLD.value,), is_final=False),
    Concern(
        "refunds",
        gettext_lazy("Refunds that failed or came back in the last 30 days"),
        Refund,
        (RefundStatus.FAILED.value, RefundStatus.RETURNED.value),
    ),
    Concern(
        "payouts",
        gettext_lazy("Payouts that failed or came back in the last 30 days"),
        Payout,
        (PayoutStatus.FAILED.value, PayoutStatus.RETURNED.value),
    ),
)


def count(account: str, at: datetime) -> dict[str, int]:
    """The number of rows of each concern, by name, with those that ended at ``at`` or later."""
    counted = {
        concern.name: SlicedAggregate(
            concern.rows(account, at).order_by().values(counted=F("synced_at"))[:LIMIT],
            "COUNT",
            "counted",
            IntegerField(),
        )
        for concern in CONCERNS
    }
    # COUNT gives the statement its one row, also if the account has none yet.
    found = AccountState.objects.filter(pk=account).aggregate(Count("pk"), **counted)
    return {concern.name: found[concern.name] for concern in CONCERNS}
