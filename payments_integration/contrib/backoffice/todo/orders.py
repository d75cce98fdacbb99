"""Find the rows of the to-do list about the merchant's orders.

Python compares orders with payments, because SQL cannot join the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime

from django.utils import timezone

from payments_integration.contrib.backoffice import comparison
from payments_integration.contrib.backoffice.models import Todo
from payments_integration.contrib.backoffice.todo.rows import SHOWN, Asked, Found, Kind, Thing, View
from payments_integration.dates import from_site, start_of
from payments_integration.db.sizes import in_parts
from payments_integration.models import Payment
from payments_integration.payable import Payable
from payments_integration.payable.doubles import find_doubles
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

#: The number of rows of orders for which one statement reads what people added.
_CHUNK = 500


def differences_of(account: str, since: datetime) -> list[Thing]:
    """Return the orders since then that do not match their payments, without personal data."""
    paid = comparison.newest_paid(account, since)
    orders = comparison.orders_of(account, comparison.models_of(account), paid)
    found = unpaid_of(account, paid, orders)
    lost = comparison.paid_without_order(paid, orders)
    found += [_of_payment(Kind.WITHOUT_ORDER, account, payment, None) for payment in lost]
    for model in comparison.compared_models(account):
        found += _without_payment(account, model, comparison.paid_without_payment(model, account, since))
    return found


def unpaid_of(account: str, paid: list[Payment], orders: list[comparison.OrderRow]) -> list[Thing]:
    """Return the payments of the list whose order is not paid, newest first."""
    unpaid = comparison.paid_for_and_unpaid(account, paid, orders)
    return [_of_payment(Kind.UNPAID, account, payment, row) for payment, row in unpaid]


def paid_twice(asked: Asked, known: list[Found]) -> Iterator[Thing]:
    """Yield the orders that are reported as paid twice and still are. Takes two statements if any is reported."""
    found_at = {(row.thing, row.currency): row.since for row in known}
    for double in find_doubles(asked.account, found_at):
        newest = double.payments[-1]
        paid_at = newest.succeeded_at or newest.created_at
        # With a third payment, it happens again.
        since = max(found_at[double.merchant_reference, double.currency] or paid_at, paid_at)
        found = _difference(
            Kind.PAID_TWICE, f"{double.merchant_reference} {double.currency}", since, currency=double.currency,
            amount=sum(each.amount_received for each in double.payments), reference=double.merchant_reference,
            about=newest.pk,
        )  # fmt: skip
        yield Thing(asked.account, found, Payment.kind, newest.pk, payments=len(double.payments))


def _of_payment(kind: Kind, account: str, payment: Payment, row: comparison.OrderRow | None) -> Thing:
    found = _difference(
        kind, payment.pk, payment.succeeded_at or payment.created_at, currency=payment.currency,
        amount=payment.amount_received, reference=str(payment.merchant_reference), about=payment.pk,
    )  # fmt: skip
    return Thing(account, found, Payment.kind, payment.pk, order=row)


def _without_payment(account: str, model: type[Payable], rows: list[comparison.OrderRow]) -> Iterator[Thing]:
    orders = model._default_manager.in_bulk([row.pk for row in rows[:SHOWN]]) if rows else {}
    latest = model._meta.get_latest_by or ""
    dated = (latest if isinstance(latest, str) else latest[0]).removeprefix("-")
    label = model._meta.label_lower
    for row in rows:
        order = orders.get(row.pk)
        amount, currency = _price(order, account)
        found = _difference(
            Kind.WITHOUT_PAYMENT, f"{label} {row.pk}", _time(getattr(order, dated, None) if dated else None),
            amount=amount, currency=currency, reference=row.reference, about="",
        )  # fmt: skip
        yield Thing(account, found, label, str(row.pk), order=row)


def _price(order: Payable | None, account: str) -> tuple[int | None, str]:
    if order is None:
        return None, ""
    try:
        return order.payments_price() or (None, "")
    except Exception:  # the project's own code may raise any error
        logger.exception("payments_price() of %s failed", order._meta.label, extra={"account": account})
        return None, ""


def _time(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value if timezone.is_aware(value) else from_site(value)
    return start_of(value) if isinstance(value, date) else None


def _difference(
    kind: Kind, thing: str, since: datetime | None, *, amount: int | None, currency: str, reference: str, about: str
) -> Found:
    return Found(
        kind.value, thing, since, status="", amount=amount, currency=currency, reference=reference, person=None,
        reason="", is_erased=0, about=about, actor_id="", assignee=None, assignee_name=None, snoozed_until=None,
    )  # fmt: skip


def marked(asked: Asked, differences: list[Thing]) -> list[Thing]:
    """Return the differences that belong to the view, with what people added. Takes one statement, unless many are
    done.
    """
    shown: list[Thing] = []
    for some in in_parts(differences, _CHUNK):
        marks: dict[tuple[str, str], list[Todo]] = defaultdict(list)
        known = Todo.objects.filter(account=asked.account, thing__in=[each.found.thing for each in some])
        for mark in known.filter(kind__in={each.kind.value for each in some}).order_by("-since").defer("note"):
            marks[mark.kind, mark.thing].append(mark)
        for each in some:
            own = [mark for mark in marks[each.kind.value, each.found.thing] if mark.since >= each.since]
            if _belongs(asked, own):
                shown.append(_with_mark(each, own[0]) if own else each)
        if len(shown) > SHOWN:
            break
    return shown[: SHOWN + 1]


def _belongs(asked: Asked, marks: list[Todo]) -> bool:
    if asked.thing is not None:
        return True
    snoozed = any(mark.snoozed_until and mark.snoozed_until > timezone.now() for mark in marks)
    if any(mark.done_at for mark in marks) or snoozed is not (asked.view == View.SNOOZED):
        return False
    return asked.view != View.MINE or any(mark.assignee == asked.user_id for mark in marks)


def _with_mark(thing: Thing, mark: Todo) -> Thing:
    found = thing.found._replace(
        assignee=mark.assignee, assignee_name=mark.assignee_name, snoozed_until=mark.snoozed_until
    )
    return replace(thing, found=found)


def with_people(differences: list[Thing]) -> list[Thing]:
    ids = {each.found.about for each in differences if each.found.about}
    if not ids:
        return differences
    payers = {
        pk: (payer, int(erased_at is not None))
        for pk, payer, erased_at in Payment.objects.filter(pk__in=ids).values_list("pk", "payer", "erased_at")
    }
    return [
        replace(each, found=each.found._replace(person=payer, is_erased=is_erased))
        for each in differences
        for payer, is_erased in [payers.get(each.found.about, (None, 0))]
    ]
