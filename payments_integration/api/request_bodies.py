"""The request bodies, for the description and for the parameter names that a route accepts.

They validate nothing: the services do, for all callers.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from payments_integration import conf
from payments_integration.api.serializers import AmountField
from payments_integration.enums import AccountType, Country, Currency, DocumentType
from payments_integration.money import INT64_MAX
from payments_integration.validation import documents
from payments_integration.validation.objects import DESTINATION_TYPES, MAX_CODE
from payments_integration.validation.validator import (
    MAX_LONG_TEXT,
    MAX_METADATA_KEY,
    MAX_METADATA_KEYS,
    MAX_METADATA_VALUE,
    MAX_TEXT,
)


def _text(about: str = "", *, longest: int = MAX_TEXT, **options: Any) -> serializers.CharField:
    return serializers.CharField(help_text=about or None, min_length=1, max_length=longest, **options)


def _optional(about: str = "", *, longest: int = MAX_TEXT) -> serializers.CharField:
    return _text(about, longest=longest, required=False, allow_null=True)


@extend_schema_field({"type": "integer", "format": "int64", "minimum": 1, "maximum": INT64_MAX})
class AmountInput(AmountField):
    pass


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE},
        "propertyNames": {"minLength": 1, "maxLength": MAX_METADATA_KEY},
        "maxProperties": MAX_METADATA_KEYS,
    }
)
class MetadataInput(serializers.DictField):
    pass


class DocumentInput(serializers.Serializer[Any]):
    type = serializers.ChoiceField(DocumentType.values)
    number = _text("Checked by the rules of its type and country.", longest=documents.MAX_LENGTH)


class PayerInput(serializers.Serializer[Any]):
    name = _optional()
    email = serializers.EmailField(required=False, allow_null=True)
    phone = _optional("E.164, such as +56912345678.")
    document = DocumentInput(required=False, allow_null=True)
    ip = _optional("For risk checks.")
    device_id = _optional("For risk checks.")


class DestinationInput(serializers.Serializer[Any]):
    type = serializers.ChoiceField(DESTINATION_TYPES)
    bank_code = _optional(longest=MAX_CODE)
    account_number = _text(longest=MAX_CODE)
    account_type = serializers.ChoiceField(AccountType.values, required=False, allow_null=True)
    holder_name = _text()
    holder_document = DocumentInput()


class _AccountInput(serializers.Serializer[Any]):
    account = _optional(f"The alias of an account; “{conf.DEFAULT_ACCOUNT}” if left out.", longest=64)


class PaymentInput(_AccountInput):
    amount = AmountInput(help_text="In minor units.")
    currency = serializers.ChoiceField(Currency.values)
    country = serializers.ChoiceField(Country.values)
    method_code = _text("The code of a payment method.")
    merchant_reference = _optional("Your own order id; the operation's id if left out.")
    payer = PayerInput(required=False, allow_null=True)
    return_url = _optional("Where the payer comes back to: https, or http to this machine.", longest=MAX_LONG_TEXT)
    flow = serializers.ChoiceField(["hosted", "s2s"], required=False)
    metadata = MetadataInput(required=False, allow_null=True)


class PayoutInput(_AccountInput):
    amount = AmountInput(help_text="In minor units.")
    currency = serializers.ChoiceField(Currency.values)
    country = serializers.ChoiceField(Country.values)
    method_code = _text()
    destination = DestinationInput()
    merchant_reference = _optional("The operation's id if left out.")
    metadata = MetadataInput(required=False, allow_null=True)


class RefundOfPaymentInput(serializers.Serializer[Any]):
    amount = AmountInput(
        required=False, allow_null=True, help_text="In minor units; all that can still be refunded if left out."
    )
    destination = DestinationInput(
        required=False,
        allow_null=True,
        help_text="Required, except for a card payment, which is refunded to the card.",
    )
    reason = _optional(longest=MAX_LONG_TEXT)


class RefundInput(RefundOfPaymentInput):
    payment_id = _text("Begins with pay_.")


class DepositReferenceInput(_AccountInput):
    country = serializers.ChoiceField(Country.values)
    currency = serializers.ChoiceField(Currency.values)
    method_code = _text()
    payer = PayerInput(required=False, allow_null=True)
    merchant_reference = _optional("Your own id for the payer.")
