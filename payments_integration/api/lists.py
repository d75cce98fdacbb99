"""Lists: filters with the provider's field names, each served by an index, and pages by keyset."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import enums
from payments_integration.api.errors import invalid
from payments_integration.api.negotiation import encode
from payments_integration.db import keyset
from payments_integration.models import OperationState, Payment
from payments_integration.services import operations

#: Within what every database stores; no object was created outside.
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)

#: Spec, "Limits".
DEFAULT_LIMIT = 25
MAX_LIMIT = 100
#: A page ends with the row that would make it larger: the provider's metadata can be long.
MAX_BYTES = 4 * 1024 * 1024
#: These have an index.
ORDERINGS = ("-created_at", "created_at")
PARAMETERS = ("limit", "cursor", "ordering")

_LIMIT = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)


class TimeField(forms.CharField):
    """RFC 3339, with a time zone."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            at = parse_datetime(text)
        except ValueError:
            at = None
        if at is None or is_naive(at):
            raise ValidationError(gettext_lazy("This must be a time with a time zone, such as 2026-01-31T12:00:00Z."))
        # No object was created outside these bounds, so a time beyond them means the same.
        if at.year < 1971:
            return _EARLIEST
        return min(at.astimezone(UTC), _LATEST) if at.year < 9999 else _LATEST


class TimeFilter(django_filters.Filter):  # type: ignore[misc]
    field_class = TimeField


def _text(field: str, longest: int = 255) -> Any:
    return django_filters.CharFilter(field_name=field, max_length=longest, strip=False)


def _choice(field: str, values: list[str] | Callable[[], list[str]]) -> Any:
    """One of ``values``; a function gives them when the filter is used."""
    read = values if callable(values) else lambda: values
    return django_filters.ChoiceFilter(field_name=field, choices=lambda: [(value, value) for value in read()])


class RowFilters(django_filters.FilterSet):  # type: ignore[misc]
    account = _text("account", 64)
    created_from = TimeFilter(field_name="created_at", lookup_expr="gte")
    created_to = TimeFilter(field_name="created_at", lookup_expr="lte")


class _MoneyFilters(RowFilters):
    currency = _choice("currency", enums.Currency.values)


class PaymentFilters(_MoneyFilters):
    status = _choice("status", enums.PaymentStatus.values)
    country = _choice("country", enums.Country.values)
    method_family = _choice("method_family", enums.MethodFamily.values)
    merchant_reference = _text("merchant_reference")


class PayoutFilters(_MoneyFilters):
    status = _choice("status", enums.PayoutStatus.values)
    country = _choice("country", enums.Country.values)
    merchant_reference = _text("merchant_reference")


class RefundFilters(_MoneyFilters):
    status = _choice("status", enums.RefundStatus.values)
    payment_id = django_filters.CharFilter(method="of_payment", max_length=255, strip=False)

    def of_payment(self, refunds: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """The payment's refunds, without those of other accounts that name it. The payment may still be unknown."""
        elsewhere = Payment.objects.filter(pk=value).exclude(account=OuterRef("account"))
        return refunds.filter(~Exists(elsewhere), payment_id=value)


class DepositReferenceFilters(_MoneyFilters):
    status = _choice("status", enums.DepositReferenceStatus.values)
    country = _choice("country", enums.Country.values)
    merchant_reference = _text("merchant_reference")


class EventFilters(RowFilters):
    type = _text("type")


class OperationFilters(RowFilters):
    state = _choice("state", OperationState.values)
    operation = _choice("operation", lambda: list(operations.CALLS))
    merchant_reference = _text("merchant_reference")
    target_id = _text("target_id")
    result_id = _text("result_id")


def apply(filters: type[RowFilters], values: Mapping[str, str], queryset: QuerySet[Any]) -> QuerySet[Any]:
    """The matching rows. Raises Problem for the first wrong value."""
    bound = filters(data=values, queryset=queryset)
    if not bound.is_valid():
        name, messages = next(iter(bound.errors.items()))
        raise invalid(name, " ".join(map(str, messages)))
    found: QuerySet[Any] = bound.qs
    return found


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Any]
    ordering: str
    #: Whether more rows follow.
    has_more: bool

    def answer(self, shown: list[Any]) -> dict[str, Any]:
        """The list with these rows as they are shown, up to MAX_BYTES of them and at least one."""
        size, count = 0, 0
        for item in shown:
            size += len(encode(item))
            if count and size > MAX_BYTES:
                break
            count += 1
        has_more = self.has_more or count < len(shown)
        next_cursor = cursor_of(self.ordering, self.rows[count - 1]) if has_more else None
        return {"object": "list", "has_more": has_more, "next_cursor": next_cursor, "data": shown[:count]}


def page(queryset: QuerySet[Any], limit: str | None, ordering: str | None, cursor: str | None) -> Page:
    """One page of rows, by one statement. Raises Problem for a parameter that is wrong."""
    wanted = _limit(limit)
    if ordering is not None and ordering not in ORDERINGS:
        raise invalid("ordering", _("This must be one of %(options)s.") % {"options": ", ".join(ORDERINGS)})
    if cursor is not None:
        of_cursor, place = _parse(cursor, queryset)
        if ordering not in (None, of_cursor):
            raise invalid("cursor", _("This cursor belongs to a list in another order."))
        ordering = of_cursor
    else:
        ordering, place = ordering or ORDERINGS[0], None
    order = keyset.Order(queryset.model._meta, [ordering])
    found = queryset if place is None else queryset.filter(order.after(place))
    # One more row tells whether there is a next page.
    rows = list(found.order_by(*order.by)[: wanted + 1])
    return Page(rows[:wanted], ordering, len(rows) > wanted)


def cursor_of(ordering: str, row: Any) -> str:
    """The cursor of the page that begins after this row."""
    return keyset.encode([ordering, *keyset.Order(row._meta, [ordering]).place(row)])


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not _LIMIT.fullmatch(text) or int(text) > MAX_LIMIT:
        raise invalid("limit", _("This must be a whole number from 1 to %(max)d.") % {"max": MAX_LIMIT})
    return int(text)


def _parse(cursor: str, queryset: QuerySet[Any]) -> tuple[str, keyset.Place]:
    """The ordering and the place that a cursor means."""
    ordering, *values = keyset.decode(cursor) or [""]
    if isinstance(ordering, str) and ordering in ORDERINGS:
        place = keyset.Order(queryset.model._meta, [ordering]).read(values)
        # Only as this module writes them: equal places have equal cursors.
        if place is not None and keyset.encode([ordering, *place]) == cursor:
            return ordering, place
    raise invalid("cursor", _("This is not a cursor of this list."))
