"""What the answers show: the provider's names and types (spec, "Resources and their fields"), and ``account``.

Amounts are integers in minor units, times are ISO 8601 in UTC; a field that the provider left out is null. A user
without the permission for personal data does not get the fields that hold it (``Mirror.personal``). Fields of the
provider that this version does not know are not shown, because they may hold personal data.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar

from drf_spectacular.drainage import set_override
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from payments_integration import enums, schemas
from payments_integration.models import (
    MIRRORS,
    DepositReference,
    EventSource,
    EventState,
    OperationState,
    Payment,
    Payout,
    Refund,
)


@extend_schema_field({"type": "integer", "format": "int64"})
class AmountField(serializers.IntegerField):
    """Minor units."""


@extend_schema_field({"type": "string", "format": "date-time"})
class TimeField(serializers.DateTimeField):
    """ISO 8601 in UTC; the project's format for its own API does not apply."""

    def to_representation(self, value: datetime) -> str:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


@extend_schema_field({"type": "object", "additionalProperties": True})
class ObjectField(serializers.JSONField):
    """JSON as the provider sent it."""


class ConstantField(serializers.Field[str, str, str, Any]):
    """``object``: the kind of the object."""

    def __init__(self, value: str) -> None:
        self.value = value
        super().__init__(source="*")
        set_override(self, "field", {"type": "string", "enum": [value]})

    def __deepcopy__(self, memo: dict[int, Any]) -> ConstantField:
        return ConstantField(self.value)

    def to_representation(self, value: Any) -> str:
        return self.value


PERSONAL = "Personal data: left out for users without the permission to see it."


def _text(about: str = "", **options: Any) -> serializers.CharField:
    return serializers.CharField(help_text=about or None, **options)


def _amount(about: str, **options: Any) -> AmountField:
    return AmountField(help_text=f"{about}, in minor units.", **options)


def _time(about: str = "", **options: Any) -> TimeField:
    return TimeField(help_text=about or None, **options)


def _personal(about: str) -> ObjectField:
    return ObjectField(help_text=f"{about} {PERSONAL}", required=False, allow_null=True)


def _open(values: Iterable[str]) -> str:
    """The provider may add values, so the known ones are listed and not declared as an enum."""
    return f"One of {', '.join(values)}; the provider may add others."


class RowSerializer(serializers.Serializer[Any]):
    """One row. The context's ``sees_personal(row)`` decides whether it has the fields listed in ``personal``."""

    personal: ClassVar[tuple[str, ...]] = ()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        if self.personal and not self.context["sees_personal"](instance):
            for name in self.personal:
                shown.pop(name, None)
        return shown


class PaymentSerializer(RowSerializer):
    personal = Payment.personal

    id = _text("Begins with pay_.")
    object = ConstantField("payment")
    account = _text("The alias of the account that it belongs to.")
    status = _text(_open(enums.PaymentStatus.values))
    amount = _amount("The amount asked for")
    amount_received = _amount("The amount received so far")
    fee = _amount("The fee on the amount received", allow_null=True)
    net_amount = _amount("The amount received, less the fee", allow_null=True)
    currency = _text()
    country = _text()
    method_code = _text()
    method_family = _text(_open(enums.MethodFamily.values))
    flow = _text(_open(enums.Flow.values), allow_null=True)
    checkout_url = _text("The page to send the payer to, in the hosted flow.", allow_null=True)
    refunded_amount = _amount("The amount refunded", allow_null=True)
    merchant_reference = _text("Your own order id.", allow_null=True)
    payer = _personal("Members: name, email, phone, document, ip, device_id.")
    next_action = _personal("What the payer must do next: `type`, and the fields of that type.")
    failure_reason = _text(allow_null=True)
    metadata = _personal("Your own data, returned unchanged.")
    created_at = _time()
    expires_at = _time(allow_null=True)
    succeeded_at = _time(allow_null=True)


class PayoutSerializer(RowSerializer):
    personal = Payout.personal

    id = _text("Begins with pout_.")
    object = ConstantField("payout")
    account = _text("The alias of the account that it belongs to.")
    status = _text(_open(enums.PayoutStatus.values))
    amount = _amount("The amount sent")
    fee = _amount("Reserved on top of the amount", allow_null=True)
    currency = _text()
    country = _text()
    method_code = _text()
    destination = _personal("The recipient's account: `type`, and the fields of that type.")
    merchant_reference = _text(allow_null=True)
    failure_reason = _text(allow_null=True)
    refund_id = _text("Set if the payout executes a refund.", allow_null=True)
    metadata = _personal("Your own data, returned unchanged.")
    created_at = _time()
    succeeded_at = _time(allow_null=True)


class RefundSerializer(RowSerializer):
    personal = Refund.personal

    id = _text("Begins with ref_.")
    object = ConstantField("refund")
    account = _text("The alias of the account that it belongs to.")
    status = _text(_open(enums.RefundStatus.values))
    payment_id = _text(allow_null=True)
    payout_id = _text("Set if the refund runs as a payout.", allow_null=True)
    amount = _amount("The amount refunded")
    currency = _text()
    reason = _text(PERSONAL, required=False, allow_null=True)
    created_at = _time()


class DepositReferenceSerializer(RowSerializer):
    personal = DepositReference.personal

    id = _text("Begins with dep_.")
    object = ConstantField("deposit_reference")
    account = _text("The alias of the account that it belongs to.")
    status = _text(_open(enums.DepositReferenceStatus.values))
    country = _text()
    currency = _text()
    method_code = _text()
    merchant_reference = _text("Your own id of the payer.", allow_null=True)
    details = ObjectField(
        help_text=f"What the payer must do: `type`, and the fields of that type. {PERSONAL}", required=False
    )
    created_at = _time()


class BalanceSerializer(RowSerializer):
    object = ConstantField("balance")
    account = _text("The alias of the account that it belongs to.")
    currency = _text()
    available = _amount("Available for payouts")
    pending = _amount("Waiting for settlement")
    reserve = _amount("Held against chargebacks")
    hold = _amount("Reserved by payouts and refunds in progress")
    debt = _amount("Owed after chargebacks; no payout is possible while it is above zero")
    updated_at = _time(allow_null=True)


class PaymentMethodSerializer(serializers.Serializer[Any]):
    """A method as the provider lists it now. Only ``code`` is certain; other fields are passed on unchanged."""

    object = ConstantField("payment_method")
    code = _text("The value for `method_code`.")

    def to_representation(self, instance: schemas.PaymentMethod) -> dict[str, Any]:
        return {**instance.extra, "object": "payment_method", "code": instance.code}


class EventSerializer(RowSerializer):
    id = _text("Begins with evt_, or with quarantine_ if it could not be understood.")
    object = ConstantField("event")
    account = _text("The alias of the account that it belongs to.")
    type = _text(_open(enums.EVENT_TYPES))
    created_at = _time()
    received_at = _time("When this server received it.")
    source = _text(_open(EventSource.values))  # type: ignore[assignment]  # a field, not an option
    state = _text(_open(EventState.values))
    object_kind = _text("The kind of object that it is about.")
    object_id = _text("The object's id; for a balance its currency.")
    data = ObjectField(  # type: ignore[assignment]
        source="*",
        allow_null=True,
        help_text="The payment, payout, refund or balance as it was then. Null if its bytes were pruned or not "
        "understood. Personal data is left out for users without the permission to see it.",
    )

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown = super().to_representation(instance)
        shown["data"] = _content(instance, sees_personal=self.context["sees_personal"](instance))
        return shown


def _content(event: Any, *, sees_personal: bool) -> dict[str, Any] | None:
    """The object in an event's bytes, with the fields that this version knows."""
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
    hidden = () if sees_personal else model.personal
    names = ["id", "object", *(name for name in model.mirrored if name not in hidden)]
    return {name: data[name] for name in names if name in data}


class RefusalSerializer(serializers.Serializer[Any]):
    """The provider's refusal, without its message, which may repeat what was sent."""

    status_code = serializers.IntegerField()
    type = _text()
    code = _text()
    param = _text(allow_null=True)
    request_id = _text("For the provider's support.")

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        return {name: instance.get(name) for name in self.get_fields()}


class OperationSerializer(RowSerializer):
    """A request to the provider, without body, arguments, key and note, which hold personal data."""

    personal = ("actor", "approved_by")

    id = _text("Begins with op_.")
    object = ConstantField("operation")
    account = _text("The alias of the account that it belongs to.")
    operation = _text("The call, such as cancel_payment.")
    state = _text(_open(OperationState.values))
    amount = _amount("The amount of the call", allow_null=True)
    currency = _text("Empty if it has none.")
    merchant_reference = _text("As sent to the provider; empty if it has none.")
    target_id = _text("The id of the object to cancel, or of the payment to refund; or empty.")
    result_kind = _text("The kind of object that it created or changed; empty until it is done.")
    result_id = _text("The id of that object; empty until it is done.")
    actor = _text(f"The user who requested it. {PERSONAL}", required=False)
    approved_by = _text(f"The user who approved it. {PERSONAL}", required=False)
    approved_at = _time(allow_null=True)
    attempts = serializers.IntegerField(help_text="How often it was sent.")
    error = RefusalSerializer(allow_null=True)
    created_at = _time()
    first_sent_at = _time(allow_null=True)
    last_sent_at = _time(allow_null=True)
    next_attempt_at = _time(allow_null=True)
    closed_at = _time(allow_null=True)


class ErrorBodySerializer(serializers.Serializer[Any]):
    type = _text("The kind of error, one of the provider's types.")
    code = _text("For programs; does not change between versions.")
    message = _text("For people.")
    param = _text("The parameter that is wrong.", required=False)
    request_id = _text("The same as in the header Request-Id and in the log.")


class ErrorSerializer(serializers.Serializer[Any]):
    error = ErrorBodySerializer()


def list_of(shown: type[serializers.Serializer[Any]]) -> type[serializers.Serializer[Any]]:
    """The envelope of a list, for the description."""
    fields: dict[str, Any] = {
        "object": ConstantField("list"),
        "has_more": serializers.BooleanField(help_text="Whether there is a next page."),
        "next_cursor": _text("The `cursor` of the next page; null on the last one.", allow_null=True),
        "data": shown(many=True),
    }
    name = shown.__name__.removesuffix("Serializer")
    return type(f"{name}ListSerializer", (serializers.Serializer,), fields)
