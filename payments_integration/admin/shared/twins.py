"""Find what was just asked for. Two people or two tabs may mean the same, so the second one must confirm again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from django.contrib.admin import AdminSite
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from payments_integration.admin.shared import display
from payments_integration.enums import VOID_REFUND_STATUSES
from payments_integration.models import Operation, OperationState, Payment, Refund
from payments_integration.validation.text import StrOrPromise

#: The same request within this time may be the same intent from another page.
WITHIN = timedelta(minutes=15)
#: The parameter that contains the ids of the twins that a page showed.
TWIN = "twin"
SAME = gettext_lazy("It was asked for at {}: {}. Confirm only if it is to be asked for once more.")
#: Finds what was just asked for about a row.
Twin = Callable[[Any], Operation | None]


def recent(call: str, **conditions: Any) -> QuerySet[Operation]:
    """Return the latest operations of a call that took effect or still may, newest first."""
    found = Operation.objects.filter(operation=call, created_at__gte=timezone.now() - WITHIN, **conditions)
    without_effect = (OperationState.REJECTED, OperationState.CLOSED)
    return found.exclude(state__in=without_effect).order_by("-created_at", "-pk")


def refund(payment: Payment) -> Operation | None:
    """Return a recent operation that refunds this payment, with any amount.

    Two people who handle the same complaint may choose different amounts.
    """
    void = Refund.objects.filter(payment=payment.pk, status__in=VOID_REFUND_STATUSES)
    found = recent("create_refund", account=payment.account, target_id=payment.pk)
    return found.exclude(result_id__in=void.values("pk")).first()


def same(call: str) -> Twin:
    """Return a function that finds the same call about the same object, for calls such as a cancel."""
    return lambda row: recent(call, account=row.account, target_id=row.pk).first()


def is_confirmed(twin: Operation | None, shown: Collection[str], keys: Collection[str | None]) -> bool:
    """Return True if there is no twin, or the page showed it, or the page itself sent it (its ``keys``)."""
    return twin is None or twin.pk in shown or twin.idempotency_key in keys


def warning(site: AdminSite, twin: Operation, words: StrOrPromise = SAME) -> SafeString:
    """Return a sentence about a twin, with its time and link."""
    return format_html(str(words), display.moment(twin.created_at), display.admin_link(site, Operation, twin.pk))
