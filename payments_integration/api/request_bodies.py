"""Describe the request bodies, for OpenAPI and for the parameter names that a route accepts.

They validate nothing, because the services do that for all callers. Django REST framework's fields would also convert
values, such as the text "5" to an amount.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from payments_integration.enums import AccountType, Country, Currency, DocumentType
from payments_integration.money import INT64_MAX
from payments_integration.validation.objects import DESTINATION_TYPES


def _optional(about: str | None = None) -> serializers.CharField:
    return serializers.CharField(help_text=about, required=False, allow_null=True)


def _amount(about: str = "", **options: Any) -> serializers.IntegerField:
    return serializers.IntegerField(
        help_text=f"In minor units. {about}".strip(), min_value=1, max_value=INT64_MAX, **options
    )


class DocumentInput(serializers.Serializer[Any]):
    type = serializers.ChoiceField(DocumentType.values)
    number = serializers.CharField(help_text="Checked by the rules of its type and country.")


class PayerInput(serializers.Serializer[Any]):
    name = _optional()
    email = _optional()
    phone = _optional("E.164, such as +56912345678.")
    document = DocumentInput(required=False, allow_null=True)
    ip = _optional("For risk checks.")
    device_id = _optional("For risk checks.")


class DestinationInput(serializers.Serializer[Any]):
    type = serializers.ChoiceField(DESTINATION_TYPES)
    bank_code = _optional()
    account_number = serializers.CharField()
    account_type = serializers.ChoiceField(AccountType.values, required=False, allow_null=True)
    holder_name = serializers.CharField()
    holder_document = DocumentInput()


class _CreationInput(serializers.Serializer[Any]):
    account = _optional("The alias of an account; “default” if left out.")
    country = serializers.ChoiceField(Country.values)
    currency = serializers.ChoiceField(Currency.values)
    method_code = serializers.CharField(help_text="The code of a payment method.")
    merchant_reference = _optional("Your own id for the order, or for the payer of a deposit reference.")


class DepositReferenceInput(_CreationInput):
    payer = PayerInput(required=False, allow_null=True)


class PaymentInput(_CreationInput):
    amount = _amount()
    payer = PayerInput(required=False, allow_null=True)
    return_url = _optional("Where the payer comes back to: https, or http to this machine.")
    flow = serializers.ChoiceField(["hosted", "s2s"], required=False)
    metadata = serializers.DictField(child=serializers.CharField(), required=False, allow_null=True)


class PayoutInput(_CreationInput):
    amount = _amount()
    destination = DestinationInput()
    metadata = serializers.DictField(child=serializers.CharField(), required=False, allow_null=True)


class RefundOfPaymentInput(serializers.Serializer[Any]):
    # Not null: a number that a form could not read becomes null in JSON, and all would be refunded.
    amount = _amount("All that can still be refunded if left out.", required=False)
    destination = DestinationInput(
        required=False,
        allow_null=True,
        help_text="Required, except for a card payment, which is refunded to the card.",
    )
    reason = _optional()


class ApproveInput(serializers.Serializer[Any]):
    comment = _optional("For the ledger.")
    digest = _optional("The `digest` of the request that the person saw: only that request is approved.")


class RejectInput(serializers.Serializer[Any]):
    comment = serializers.CharField(help_text="Why, for the ledger.")


#: The decisions about an operation, which are functions of ``services``, each with the permission that it needs.
DECISIONS = {
    "look_up": "change_operation",
    "retry": "change_operation",
    "mark_happened": "change_operation",
    "mark_never_happened": "close_operation",
    "mark_others": "close_operation",
}


class DecideInput(serializers.Serializer[Any]):
    decision = serializers.ChoiceField([*DECISIONS], help_text="What to do, or what the person has found out.")
    comment = _optional("How the person knows; required for what they say.")
    object_id = _optional("Of `mark_happened`: the object that it made.")
    object_ids = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        allow_null=True,
        help_text="Of `mark_others`: the objects that are not its result.",
    )


class RefundInput(RefundOfPaymentInput):
    payment_id = serializers.CharField(help_text="Begins with pay_.")
