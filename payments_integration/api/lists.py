"""Filter lists by the provider's field names, each served by an index, and page them by keyset."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import django_filters
from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive
from django.utils.translation import gettext as _, gettext_lazy
from django_filters import ChoiceFilter
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import enums, permissions, schemas
from payments_integration.api.errors import invalid, missing
from payments_integration.dates import end_of, start_of
from payments_integration.db import keyset
from payments_integration.models import OperationState, Payment
from payments_integration.models.mirrors import payer_document, payer_email
from payments_integration.money import INT64_MAX
from payments_integration.services import operations

#: Spec, "Limits".
DEFAULT_LIMIT = 25
MAX_LIMIT = 100
#: A page ends before the row that would make it larger, because the provider's metadata can be long.
MAX_BYTES = 4 * 1024 * 1024
#: The orders that have an index.
ORDERINGS = ("-created_at", "created_at")

#: The description of a filter that accepts several values.
_SEVERAL = "One or more, with commas between them."
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_LIMIT = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)


class TimeField(forms.CharField):
    """A time in RFC 3339 with a time zone, or a date, which is a whole day in the site's zone.

    django-filter's own field assumes the site's zone for a time without one.
    """

    def __init__(self, *, ends: bool = False, **options: Any) -> None:
        """``ends``: a date means its last moment, not its first."""
        super().__init__(**options)
        self.ends = ends

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            at = self._of_date(text) if _DATE.fullmatch(text) else parse_datetime(text)
        except (ValueError, OverflowError):
            at = None
        if at is None or is_naive(at):
            raise ValidationError(gettext_lazy("This must be a time with a time zone, such as 2026-01-31T12:00:00Z."))
        # No object was created outside these bounds, so a time beyond them means the same.
        if at.year < 1971:
            return schemas.EARLIEST
        return min(at.astimezone(UTC), schemas.LATEST) if at.year < 9999 else schemas.LATEST

    def _of_date(self, text: str) -> datetime:
        day = date.fromisoformat(text)
        if day.year >= schemas.LATEST.year:
            return schemas.LATEST
        return end_of(day) if self.ends else start_of(day)


class TimeFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    field_class = TimeField


def is_whole(text: object) -> bool:
    """Return True for ASCII digits. The fields of Django and of REST framework take 5.000 as 5, not as 5000."""
    return re.fullmatch(r"[0-9]+", str(text)) is not None


class WholeField(forms.IntegerField):
    def to_python(self, value: Any) -> Any:
        if value not in self.empty_values and not is_whole(value):
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(value)


class AmountFilter(django_filters.NumberFilter):  # type: ignore[misc]
    field_class = WholeField


class SeveralFilter(django_filters.BaseInFilter, ChoiceFilter):  # type: ignore[misc]
    """One or more of the choices, with commas between them."""

    def filter(self, qs: QuerySet[Any], value: Any) -> QuerySet[Any]:
        if value and not all(value):
            raise invalid(self.field_name, _("This must be given once, and not be empty."))
        found: QuerySet[Any] = super().filter(qs, value)
        return found


def _text() -> Any:
    return django_filters.CharFilter(max_length=255, strip=False)


class AccountFilters(django_filters.FilterSet):  # type: ignore[misc]
    account = _text()


class RowFilters(AccountFilters):
    created_from = TimeFilter(field_name="created_at", lookup_expr="gte")
    created_to = TimeFilter(field_name="created_at", lookup_expr="lte", ends=True)


class _MoneyFilters(RowFilters):
    currency = ChoiceFilter(choices=enums.Currency.choices)


class _WithReference(_MoneyFilters):
    country = ChoiceFilter(choices=enums.Country.choices)
    merchant_reference = _text()


class PaymentFilters(_WithReference):
    status = SeveralFilter(choices=enums.PaymentStatus.choices, label=_SEVERAL)
    method_family = ChoiceFilter(choices=enums.MethodFamily.choices)
    payer = django_filters.CharFilter(
        method="of_payer",
        max_length=255,
        label="A whole e-mail address or document number. Only for staff who may see personal data.",
    )
    amount = AmountFilter(
        method="of_amount",
        min_value=1,
        max_value=INT64_MAX,
        label="Exactly this much, in minor units. It needs `created_from`.",
    )

    def of_payer(self, payments: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Filter by the payer. Refuses users who may not see payers: a search would tell them if somebody has paid."""
        if not permissions.is_staff(self.request.user):
            raise PermissionDenied
        permissions.require(self.request.user, "view_personal_data")
        if "@" in value:
            return payments.filter(payer_email=payer_email({"email": value}) or None)
        return payments.filter(payer_document=payer_document({"document": {"number": value}}) or None)

    def of_amount(self, payments: QuerySet[Any], name: str, value: Any) -> QuerySet[Any]:
        if not self.form.cleaned_data.get("created_from"):
            # No index has amounts, so the dates bound what is read.
            raise missing("created_from", _("A search by amount needs a first day."))
        return payments.filter(amount=value)


class PayoutFilters(_WithReference):
    status = SeveralFilter(choices=enums.PayoutStatus.choices, label=_SEVERAL)


class DepositReferenceFilters(_WithReference):
    status = ChoiceFilter(choices=enums.DepositReferenceStatus.choices)


class RefundFilters(_MoneyFilters):
    status = SeveralFilter(choices=enums.RefundStatus.choices, label=_SEVERAL)
    payment_id = django_filters.CharFilter(method="of_payment", max_length=255, strip=False)

    def of_payment(self, refunds: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Filter by the payment, without refunds of other accounts that name it. The payment may be unknown yet."""
        elsewhere = Payment.objects.filter(pk=value).exclude(account=OuterRef("account"))
        return refunds.filter(~Exists(elsewhere), payment_id=value)


class EventFilters(RowFilters):
    type = _text()


class OperationFilters(RowFilters):
    state = ChoiceFilter(choices=OperationState.choices)
    # Evaluated at each use, because a project may register further calls.
    operation = ChoiceFilter(choices=lambda: [(name, name) for name in operations.CALLS])
    merchant_reference = _text()
    target_id = _text()
    result_id = _text()


class SinglePage(BasePagination):
    """The envelope of a list, with all rows in one page."""

    #: Maps query parameters to their schemas.
    parameters: ClassVar[dict[str, dict[str, Any]]] = {}

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        return list(queryset)

    def get_paginated_response(self, data: Any, next_cursor: str | None = None) -> Response:
        has_more = next_cursor is not None
        return Response({"object": "list", "has_more": has_more, "next_cursor": next_cursor, "data": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        fields = {
            "object": {"type": "string", "enum": ["list"]},
            "has_more": {"type": "boolean", "description": "Whether there is a next page."},
            "next_cursor": {"type": ["string", "null"], "description": "The `cursor` of the next page."},
            "data": schema,
        }
        return {"type": "object", "properties": fields, "required": [*fields]}

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [{"name": name, "in": "query", "schema": schema} for name, schema in self.parameters.items()]


class KeysetPages(SinglePage):
    """Pages by keyset. Django REST framework's ``CursorPagination`` uses OFFSET for rows of the same moment."""

    parameters = {
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        "cursor": {"type": "string"},
        "ordering": {"type": "string", "enum": [*ORDERINGS], "default": ORDERINGS[0]},
    }

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        """Return one page of rows, in one statement. Raises Problem for a wrong parameter."""
        query = request.query_params
        limit, ordering, cursor = _limit(query.get("limit")), query.get("ordering"), query.get("cursor")
        if ordering is not None and ordering not in ORDERINGS:
            raise invalid("ordering", _("This must be one of %(options)s.") % {"options": ", ".join(ORDERINGS)})
        place = None
        if cursor is not None:
            of_cursor, place = _parse(cursor, queryset)
            if ordering not in (None, of_cursor):
                raise invalid("cursor", _("This cursor belongs to a list in another order."))
            ordering = of_cursor
        self.ordering = ordering or ORDERINGS[0]
        order = keyset.Order(queryset.model._meta, [self.ordering])
        found = queryset if place is None else queryset.filter(order.after(place))
        # One more row tells if there is a next page.
        rows = list(found.order_by(*order.by)[: limit + 1])
        self.rows, self.has_more = rows[:limit], len(rows) > limit
        return self.rows

    def get_paginated_response(self, data: Any, next_cursor: str | None = None) -> Response:
        """Return the page with these serialized rows: up to MAX_BYTES, but at least one row."""
        size, count = 0, 0
        for item in data:
            size += len(schemas.encode(item))
            if count and size > MAX_BYTES:
                break
            count += 1
        if self.has_more or count < len(data):
            next_cursor = cursor_of(self.ordering, self.rows[count - 1])
        return super().get_paginated_response(data[:count], next_cursor)


def cursor_of(ordering: str, row: Any) -> str:
    return keyset.encode([ordering, *keyset.Order(row._meta, [ordering]).place(row)])


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not _LIMIT.fullmatch(text) or int(text) > MAX_LIMIT:
        raise invalid("limit", _("This must be a whole number from 1 to %(max)d.") % {"max": MAX_LIMIT})
    return int(text)


def _parse(cursor: str, queryset: QuerySet[Any]) -> tuple[str, keyset.Place]:
    """Return the ordering and the place that a cursor encodes. Raises Problem for any other text."""
    ordering, *values = keyset.decode(cursor) or [""]
    if isinstance(ordering, str) and ordering in ORDERINGS:
        place = keyset.Order(queryset.model._meta, [ordering]).read(values)
        # Accept only cursors as this module writes them, so that equal places have equal cursors.
        if place is not None and keyset.encode([ordering, *place]) == cursor:
            return ordering, place
    raise invalid("cursor", _("This is not a cursor of this list."))
