"""What lists are narrowed down by: only what an index serves, under the provider's names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive
from django.utils.translation import gettext_lazy as _

from payments_integration import enums
from payments_integration.api.errors import invalid
from payments_integration.models import OperationState
from payments_integration.services.recipes import RECIPES

#: What every database stores, and more than anything was created in.
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


class MomentField(forms.CharField):
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
            raise ValidationError(_("This must be a time with a time zone, such as 2026-01-31T12:00:00Z."))
        # Nothing was created outside; what is further away means the same.
        if at.year < 1971:
            return _EARLIEST
        return min(at.astimezone(UTC), _LATEST) if at.year < 9999 else _LATEST


class MomentFilter(django_filters.Filter):  # type: ignore[misc]
    field_class = MomentField


def _text(field: str, longest: int = 255) -> Any:
    return django_filters.CharFilter(field_name=field, max_length=longest, strip=False)


def _choice(field: str, values: list[str]) -> Any:
    return django_filters.ChoiceFilter(field_name=field, choices=[(value, value) for value in values])


class RowFilters(django_filters.FilterSet):  # type: ignore[misc]
    account = _text("account", 64)
    created_from = MomentFilter(field_name="created_at", lookup_expr="gte")
    created_to = MomentFilter(field_name="created_at", lookup_expr="lte")


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
    payment_id = _text("payment_id")


class DepositReferenceFilters(_MoneyFilters):
    status = _choice("status", enums.ActiveStatus.values)
    country = _choice("country", enums.Country.values)
    merchant_reference = _text("merchant_reference")


class EventFilters(RowFilters):
    type = _text("type")


class OperationFilters(RowFilters):
    state = _choice("state", OperationState.values)
    operation = _choice("operation", list(RECIPES))
    merchant_reference = _text("merchant_reference")
    target_id = _text("target_id")
    result_id = _text("result_id")


def apply(filters: type[RowFilters], values: Mapping[str, str], queryset: QuerySet[Any]) -> QuerySet[Any]:
    """The rows that fit. Raises Problem for the first value that means nothing."""
    bound = filters(data=values, queryset=queryset)
    if not bound.is_valid():
        name, messages = next(iter(bound.errors.items()))
        raise invalid(name, " ".join(map(str, messages)))
    found: QuerySet[Any] = bound.qs
    return found
