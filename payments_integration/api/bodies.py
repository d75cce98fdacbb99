"""The bodies that calls take, for the description and for the names they may have.

They refuse nothing: the services do, for every caller alike.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from payments_integration import conf, documents
from payments_integration.api.fields import Amount
from payments_integration.enums import AccountType, Country, Currency, DocumentType
from payments_integration.money import INT64_MAX
from payments_integration.services.checks import (
    MAX_LONG_TEXT,
    MAX_METADATA_KEYS,
    MAX_METADATA_VALUE,
    MAX_TEXT,
)
from payments_integration.services.shapes import DESTINATION_TYPES, MAX_CODE


def _text(about: str = "", *, longest: int = MAX_TEXT, **options: Any) -> serializers.CharField:
    return serializers.CharField(help_text=about or None, min_length=1, max_length=longest, **options)


def _optional(about: str = "", *, longest: int = MAX_TEXT) -> serializers.CharField:
    return _text(about, longest=longest, required=False, allow_null=True)


@extend_schema_field({"type": "integer", "format": "int64", "minimum": 1, "maximum": INT64_MAX})
class AmountGiven(Amount):
    pass


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE},
        "maxProperties": MAX_METADATA_KEYS,
    }
)
class Metadata(serializers.DictField):
    pass


class DocumentGiven(serializers.Serializer[Any]):
    type = serializers.ChoiceField(DocumentType.values)
    number = _text("Checked by the rules of its type and country.", longest=documents.MAX_LENGTH)


class PayerGiven(serializers.Serializer[Any]):
    name = _optional()
    email = serializers.EmailField(required=False, allow_null=True)
    phone = _optional("E.164, such as +56912345678.")
    document = DocumentGiven(required=False, allow_null=True)
    ip = _optional("For risk checks.")
    device_id = _optional("For risk checks.")


class DestinationGiven(serializers.Serializer[Any]):
    type = serializers.ChoiceField(DESTINATION_TYPES)
    bank_code = _optional(longest=MAX_CODE)
    account_number = _text(longest=MAX_CODE)
    account_type = serializers.ChoiceField(AccountType.values, required=False, allow_null=True)
    holder_name = _text()
    holder_document = DocumentGiven()


class _Given(serializers.Serializer[Any]):
    account = _optional(f"An account of the setting; “{conf.DEFAULT_ACCOUNT}” if left out.", longest=64)


class PaymentGiven(_Given):
    amount = AmountGiven(help_text="In minor units.")
    currency = serializers.ChoiceField(Currency.values)
    country = serializers.ChoiceField(Country.values)
    method_code = _text("A code of the payment methods.")
    merchant_reference = _optional("Your own order id; the operation's id if left out.")
    payer = PayerGiven(required=False, allow_null=True)
    return_url = _optional("Where the payer comes back to: https, or http on this machine.", longest=MAX_LONG_TEXT)
    flow = serializers.ChoiceField(["hosted", "s2s"], required=False)
    metadata = Metadata(required=False, allow_null=True)


class PayoutGiven(_Given):
    amount = AmountGiven(help_text="In minor units.")
    currency = serializers.ChoiceField(Currency.values)
    country = serializers.ChoiceField(Country.values)
    method_code = _text()
    destination = DestinationGiven()
    merchant_reference = _optional("The operation's id if left out.")
    metadata = Metadata(required=False, allow_null=True)


class RefundOfPaymentGiven(serializers.Serializer[Any]):
    amount = AmountGiven(required=False, allow_null=True, help_text="In minor units; all that is left if left out.")
    destination = DestinationGiven(
        required=False, allow_null=True, help_text="Required unless a card was charged, and refused where one was."
    )
    reason = _optional(longest=MAX_LONG_TEXT)


class RefundGiven(RefundOfPaymentGiven):
    payment_id = _text("Begins with pay_.")


class DepositReferenceGiven(_Given):
    country = serializers.ChoiceField(Country.values)
    currency = serializers.ChoiceField(Currency.values)
    method_code = _text()
    payer = PayerGiven(required=False, allow_null=True)
    merchant_reference = _optional("Your own id of the payer.")
