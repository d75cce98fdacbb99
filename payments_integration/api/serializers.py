"""Serialize the answers: the provider's names and types (spec, "Resources and their fields"), and ``account``.

Amounts are integers in minor units. Times are ISO 8601 in UTC. A field that the provider left out is null. A user
without the permission for personal data does not get the fields that hold it (``Mirror.personal``). Fields of the
provider that this version does not know are not shown, because they may hold personal data.
"""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any, ClassVar

from django.db import models
from django.urls import NoReverseMatch
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import ISO_8601, serializers

from payments_integration import permissions, schemas, services
from payments_integration.api.request_bodies import DECISIONS
from payments_integration.models import (
    EMPTY_VALUES,
    MIRRORS,
    Balance,
    DepositReference,
    Event,
    EventState,
    Operation,
    OperationState,
    Payment,
    Payout,
    Refund,
)
from payments_integration.payer.links import has_receipt, receipt_path, status_url
from payments_integration.payer.status import shown_status


@extend_schema_field(OpenApiTypes.INT64)
class AmountField(serializers.IntegerField):
    """Minor units. Clients that are generated from the description need 64 bits."""


class TimeField(serializers.DateTimeField):
    """ISO 8601 in UTC. The project's format for its own API does not apply."""

    def __init__(self, **options: Any) -> None:
        super().__init__(format=ISO_8601, default_timezone=UTC, **options)


@extend_schema_field(OpenApiTypes.OBJECT)
class ObjectField(serializers.JSONField):
    """JSON as the provider sent it. Null for the empty object that an erasure leaves in some columns."""

    def to_representation(self, value: Any) -> Any:
        return None if value == {} and self.field_name in EMPTY_VALUES else super().to_representation(value)


@extend_schema_field({"type": ["string", "null"], "format": "uri"})
class AddressField(serializers.CharField):
    """The address of a page; null if there is none."""


def _object(kind: str) -> serializers.ChoiceField:
    return serializers.ChoiceField([kind], default=kind, read_only=True)


class RowSerializer(serializers.ModelSerializer[Any]):
    """One row. The fields listed in ``personal`` are left out unless the context's ``sees_personal(row)`` is True."""

    serializer_field_mapping: ClassVar[
        dict[type[models.Field[Any, Any]], type[serializers.Field[Any, Any, Any, Any]]]
    ] = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.BigIntegerField: AmountField,
        models.DateTimeField: TimeField,
        models.JSONField: ObjectField,
    }
    personal: ClassVar[tuple[str, ...]] = ()

    def get_extra_kwargs(self) -> dict[str, dict[str, Any]]:
        # The description says that read-only fields are always present, so personal fields are not read-only.
        about = {"required": False, "help_text": "Personal data: left out for users without the permission to see it."}
        return {name: about if name in self.personal else {"read_only": True} for name in self.Meta.fields}

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        if self.personal and not self.context["sees_personal"](instance):
            for name in self.personal:
                shown.pop(name, None)
        return shown


class DisplaySerializer(serializers.Serializer[Any]):
    headline = serializers.CharField(help_text="The status, such as “Paid”.")
    message = serializers.CharField(help_text="What it means for the payer.")
    tone = serializers.ChoiceField(["good", "bad", "quiet", "open"], help_text="How it looks.")


class PaymentSerializer(RowSerializer):
    # The addresses are personal because the pages behind them need no login.
    personal = (*Payment.personal, "status_url", "receipt_url")
    object = _object("payment")
    is_final = serializers.SerializerMethodField(
        help_text="Whether a page has nothing more to wait for. A late payment may still turn an expired one into a "
        "succeeded one."
    )
    display = serializers.SerializerMethodField(
        help_text="What the payer reads, in the language of the request: the same as on the status page."
    )
    status_url = AddressField(
        required=False,
        help_text="The status page of this payment, which needs no login; valid for 30 days. Not in lists. Personal "
        "data: left out for users without the permission to see it.",
    )
    receipt_url = AddressField(
        required=False,
        help_text="The receipt, likewise; null until it is paid, and where the project has no receipts.",
    )

    class Meta:
        model = Payment
        fields = ("id", "object", "account", *Payment.mirrored, "is_final", "display", "status_url", "receipt_url")

    def get_is_final(self, payment: Payment) -> bool:
        return shown_status(payment).is_final

    @extend_schema_field(DisplaySerializer)
    def get_display(self, payment: Payment) -> dict[str, str]:
        shown = shown_status(payment)
        return {"headline": shown.headline, "message": shown.message, "tone": shown.tone}

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown = super().to_representation(instance)
        if not isinstance(self.parent, serializers.ListSerializer) and self.context["sees_personal"](instance):
            request = self.context["request"]
            try:
                shown["status_url"] = address = status_url(request, instance)
            except NoReverseMatch:
                # The project includes the app's URLs in its own namespace, where the page's name is unknown.
                shown["status_url"] = shown["receipt_url"] = None
            else:
                receipt = receipt_path(address.rstrip("/").rpartition("/")[2]) if has_receipt(instance) else ""
                shown["receipt_url"] = request.build_absolute_uri(receipt) if receipt else None
        return shown


class TotalSerializer(serializers.Serializer[Any]):
    """The sums of payments. Amounts of different currencies are never added."""

    SUMS: ClassVar[tuple[str, ...]] = ("amount", "amount_received", "fee", "refunded_amount")

    object = _object("total")
    currency = serializers.CharField()
    status = serializers.CharField()
    count = serializers.IntegerField(help_text="How many payments.")
    amount = AmountField(help_text="Asked for, in minor units.")
    amount_received = AmountField(help_text="Received, in minor units.")
    fee = AmountField(help_text="What the provider takes, in minor units.")
    refunded_amount = AmountField(help_text="Given back, in minor units.")

    def to_representation(self, instance: Any) -> dict[str, Any]:
        # A sum without values is null, and some databases sum integers to decimals.
        return {"object": "total", **instance, **{name: int(instance[name] or 0) for name in self.SUMS}}


class PayoutSerializer(RowSerializer):
    personal = Payout.personal
    object = _object("payout")

    class Meta:
        model = Payout
        fields = ("id", "object", "account", *Payout.mirrored)


class RefundSerializer(RowSerializer):
    personal = Refund.personal
    object = _object("refund")

    class Meta:
        model = Refund
        fields = ("id", "object", "account", *Refund.mirrored)


class DepositReferenceSerializer(RowSerializer):
    personal = DepositReference.personal
    object = _object("deposit_reference")

    class Meta:
        model = DepositReference
        fields = ("id", "object", "account", *DepositReference.mirrored)


class BalanceSerializer(RowSerializer):
    object = _object("balance")

    class Meta:
        model = Balance
        fields = ("object", "account", *Balance.mirrored)


class PaymentMethodSerializer(serializers.Serializer[Any]):
    """A method as the provider lists it now. Only ``code`` is certain; other fields are passed on unchanged."""

    object = _object("payment_method")
    code = serializers.CharField(help_text="The value for `method_code`.")

    def to_representation(self, instance: schemas.PaymentMethod) -> dict[str, Any]:
        return {**instance.extra, "object": "payment_method", "code": instance.code}


class EventSerializer(RowSerializer):
    object = _object("event")
    data = serializers.SerializerMethodField(  # type: ignore[assignment]  # a field, not the property
        help_text="The payment, payout, refund or balance as it was then. Null if its bytes were pruned or not "
        "understood. Personal data is left out for users without the permission to see it."
    )

    class Meta:
        model = Event
        fields = (
            "id", "object", "account", "type", "created_at", "received_at", "source", "state", "object_kind",
            "object_id", "data",
        )  # fmt: skip

    def get_data(self, event: Event) -> dict[str, Any] | None:
        """Return the object in an event's bytes, with the fields that this version knows."""
        if event.state == EventState.QUARANTINED or not event.body:
            return None
        try:
            data = schemas.decode_event(bytes(event.body)).data
        except schemas.WireError:
            return None
        kind = data.get("object")
        if not isinstance(kind, str) or kind not in schemas.EVENT_RESOURCES:
            return None
        model = MIRRORS[kind]
        hidden = () if self.context["sees_personal"](event) else model.personal
        names = ["id", "object", *(name for name in model.mirrored if name not in hidden)]
        return {name: data[name] for name in names if name in data}


class RefusalSerializer(serializers.Serializer[Any]):
    """The provider's refusal, without its message and parameter, which may repeat what was sent."""

    status_code = serializers.IntegerField(allow_null=True, default=None)
    type = serializers.CharField(allow_null=True, default=None)
    code = serializers.CharField(allow_null=True, default=None)
    request_id = serializers.CharField(allow_null=True, default=None, help_text="For the provider's support.")


class OperationSerializer(RowSerializer):
    """A request to the provider, without body, arguments, key and note, which hold personal data."""

    personal = ("actor", "approved_by")
    object = _object("operation")
    error = RefusalSerializer(read_only=True, allow_null=True)
    actions = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="What the caller may do with it now: `approve`, `reject`, and the decisions. Not in lists.",
    )
    # The source is not the row's own attribute, because reading that in a list would load the bodies.
    request = serializers.JSONField(
        source="shown_request",
        required=False,
        help_text="What an approval sends. Only while it waits for approval, and for those who may approve it.",
    )
    digest = serializers.CharField(required=False, help_text="Of that request, for the approval.")

    class Meta:
        model = Operation
        fields = (
            "id", "object", "account", "operation", "state", "amount", "currency", "merchant_reference", "target_id",
            "result_kind", "result_id", "actor", "approved_by", "approved_at", "attempts", "error", "created_at",
            "first_sent_at", "last_sent_at", "next_attempt_at", "closed_at", "actions", "request", "digest",
        )  # fmt: skip

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown = super().to_representation(instance)
        for name in ("actions", "request", "digest"):
            shown.pop(name, None)
        user = self.context["request"].user
        if isinstance(self.parent, serializers.ListSerializer) or not permissions.is_staff(user):
            return shown
        shown["actions"] = _actions(instance, user)
        if instance.state == OperationState.AWAITING_APPROVAL and permissions.may(user, "approve_operation", instance):
            shown |= {"request": json.loads(instance.request or b"null"), "digest": instance.body_digest}
        return shown


def _actions(operation: Operation, user: Any) -> list[str]:
    """Return the actions that the services would allow this member of staff, as far as the ledger knows."""
    found = set()
    is_own = services.is_requester(operation, user)
    if operation.state == OperationState.AWAITING_APPROVAL:
        may = permissions.may(user, "approve_operation", operation)
        found |= {"approve"} if may and not is_own else set()
        found |= {"reject"} if may or is_own else set()
    possible = services.possible_resolutions(operation)
    return sorted(found | {name for name in possible if permissions.may(user, DECISIONS[name], operation)})


class WrongFieldSerializer(serializers.Serializer[Any]):
    param = serializers.CharField(help_text="Its name, with dots for what is nested, such as `payer.email`.")
    code = serializers.CharField(help_text="`parameter_missing`, `parameter_invalid`, or the provider's.")
    message = serializers.CharField(help_text="For the person at the form, in the language of the request.")


class ErrorBodySerializer(serializers.Serializer[Any]):
    type = serializers.CharField(help_text="The kind of error, one of the provider's types.")
    code = serializers.CharField(help_text="For programs; does not change between versions.")
    message = serializers.CharField(help_text="For people.")
    param = serializers.CharField(help_text="The first field that is wrong.", required=False)
    errors = WrongFieldSerializer(  # type: ignore[assignment]  # a field, not the property
        many=True, required=False, help_text="Every field that is wrong."
    )
    request_id = serializers.CharField(help_text="The same as in the header Request-Id and in the log.")


class ErrorSerializer(serializers.Serializer[Any]):
    error = ErrorBodySerializer()
