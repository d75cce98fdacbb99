"""Find what was just asked for, or is still open.

Two people or two tabs may mean the same, so the second one must confirm again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.admin import AdminSite
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from payments_integration.admin.shared import display
from payments_integration.enums import VOID_REFUND_STATUSES
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState, Payment, Refund
from payments_integration.validation.text import StrOrPromise

#: The same request within this time may be the same intent from another page.
WITHIN = timedelta(minutes=15)
#: The parameter that contains the ids of the twins that a page showed.
TWIN = "twin"
#: The parameter with the time at which a page was made, in seconds since 1970.
MADE_AT = "made_at"
SAME = gettext_lazy("It was asked for at {}: {}. Confirm only if it is to be asked for once more.")
#: Finds what was asked for about a row since a time.
Twin = Callable[[Any, datetime], Operation | None]


def made_at(request: HttpRequest) -> int:
    """Return when the posted page was made, as its form says; now if it does not, or for a new page."""
    given = request.POST.get(MADE_AT, "")
    is_time = given.isascii() and given.isdigit() and len(given) <= len("9999999999")
    return int(given) if is_time else int(timezone.now().timestamp())


def window_start(made: int) -> datetime:
    """Return the time from which on a page that was made then looks for twins.

    A person may leave it open for hours, and it shows nothing that was asked for meanwhile. A forged time finds more
    twins, never fewer.
    """
    return min(datetime.fromtimestamp(made, UTC), timezone.now() - WITHIN)


def recent(call: str, since: datetime, keys: Collection[str] = (), **conditions: Any) -> QuerySet[Operation]:
    """Return the operations of a call that took effect since a time or, of any age, still may. Newest first.

    ``keys``: the idempotency keys of the page itself, whose operations are left out.
    """
    may_move_money = Q(state__in=OPEN_OPERATION_STATES) | Q(state=OperationState.DONE, created_at__gte=since)
    found = Operation.objects.filter(may_move_money, operation=call, **conditions)
    return found.exclude(idempotency_key__in=keys).order_by("-created_at", "-pk")


def refund(payment: Payment, since: datetime, keys: Collection[str] = ()) -> Operation | None:
    """Return a recent operation that refunds this payment, with any amount.

    Two people who handle the same complaint may choose different amounts.
    """
    void = Refund.objects.filter(payment=payment.pk, status__in=VOID_REFUND_STATUSES)
    found = recent("create_refund", since, keys, account=payment.account, target_id=payment.pk)
    return found.exclude(result_id__in=void.values("pk")).first()


def same(call: str) -> Twin:
    """Return a function that finds the same call about the same object, for calls such as a cancel."""
    return lambda row, since: recent(call, since, account=row.account, target_id=row.pk).first()


def is_confirmed(twin: Operation | None, shown: Collection[str], keys: Collection[str | None]) -> bool:
    """Return True if there is no twin, or the page showed it, or the page itself sent it (its ``keys``)."""
    return twin is None or twin.pk in shown or twin.idempotency_key in keys


def warning(site: AdminSite, twin: Operation, words: StrOrPromise = SAME) -> SafeString:
    """Return a sentence about a twin, with its time and link."""
    return format_html(str(words), display.moment(twin.created_at), display.admin_link(site, Operation, twin.pk))
