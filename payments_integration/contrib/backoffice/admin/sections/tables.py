"""Explain the state of an object, and list the refunds and payouts that belong to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Cell, Page, Section
from payments_integration.models import Payment, Payout, Refund
from payments_integration.validation.text import StrOrPromise


@dataclass(frozen=True, slots=True)
class Advice(Section):
    """Explains what the state means, and what a person can do."""

    template: ClassVar[str] = "admin/payments_backoffice/includes/advice.html"

    title: StrOrPromise
    sentences: list[str]


def refunds(
    page: Page,
    rows: QuerySet[Refund],
    search: str,
    *,
    title: StrOrPromise = "",
    of_payout: bool = False,
    is_folded: bool = False,
) -> Iterable[Section]:
    """Yield the refunds of a payment, each with its payout. With ``of_payout``, each with its payment."""
    other: dict[StrOrPromise, Cell]
    if of_payout:
        other = {_("Payment"): lambda row: display.admin_link(page.site, Payment, row.payment_id)}
    else:
        other = {_("Payout"): lambda row: display.admin_link(page.site, Payout, row.payout_id)}
    return page.section(
        title or _("Refunds"),
        rows.order_by("-created_at", "-pk"),
        {
            _("Refund"): lambda row: display.admin_link(page.site, Refund, row.pk),
            _("Status"): lambda row: display.status(row.status, Refund.Status),
            _("Amount"): lambda row: display.money(row.amount, row.currency),
            **other,
            _("Reason"): lambda row: page.personal(row.reason),
            _("Created at"): lambda row: display.moment(row.created_at),
        },
        search,
        is_folded=is_folded,
        hides_none=True,
    )


def payouts(page: Page, rows: QuerySet[Payout], search: str) -> Iterable[Section]:
    return page.section(
        _("Payouts"),
        rows.order_by("-created_at", "-pk"),
        {
            _("Payout"): lambda row: display.admin_link(page.site, Payout, row.pk),
            _("Status"): lambda row: display.status(row.status, Payout.Status),
            _("Amount"): lambda row: display.money(row.amount, row.currency),
            _("Created at"): lambda row: display.moment(row.created_at),
        },
        search,
        hides_none=True,
    )
