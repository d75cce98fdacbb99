"""What the answers show: the provider's names and types (spec, "Resources and their fields"), and ``account``.

Amounts are integers in minor units, times ISO 8601 in UTC; what the provider left out is null. Fields that hold
personal data (``Mirror.personal``) are left out for whoever may not see them. Fields of the provider that this version
does not know are not shown: nobody has said what is in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from rest_framework import serializers

from payments_integration import enums, wire
from payments_integration.api.fields import Amount, Constant, Moment, Object
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

PERSONAL = "Personal data: left out for whoever may not see it."


def _text(about: str = "", **options: Any) -> serializers.CharField:
    return serializers.CharField(help_text=about or None, **options)


def _amount(about: str, **options: Any) -> Amount:
    return Amount(help_text=f"{about}, in minor units.", **options)


def _moment(about: str = "", **options: Any) -> Moment:
    return Moment(help_text=about or None, **options)


def _personal(about: str) -> Object:
    return Object(help_text=f"{about} {PERSONAL}", required=False, allow_null=True)


def _open(values: Iterable[str]) -> str:
    """The provider may add values; the known ones are named, not promised."""
    return f"One of {', '.join(values)}; others may come."


class Shown(serializers.Serializer[Any]):
    """One row. The context's ``sees_personal(row)`` decides about the fields named in ``personal``."""

    personal: ClassVar[tuple[str, ...]] = ()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        if self.personal and not self.context["sees_personal"](instance):
            for name in self.personal:
                shown.pop(name, None)
        return shown


class PaymentSerializer(Shown):
    personal = Payment.personal

    id = _text("Begins with pay_.")
    object = Constant("payment")
    account = _text("The account of the setting that it belongs to.")
    status = _text(_open(enums.PaymentStatus.values))
    amount = _amount("What was asked for")
    amount_received = _amount("What has come so far")
    fee = _amount("The fee on what has come", allow_null=True)
    net_amount = _amount("What has come, less the fee", allow_null=True)
    currency = _text()
    country = _text()
    method_code = _text()
    method_family = _text(_open(enums.MethodFamily.values))
    flow = _text(_open(enums.Flow.values), allow_null=True)
    checkout_url = _text("The page to send the payer to, in the hosted flow.", allow_null=True)
    refunded_amount = _amount("What has been given back", allow_null=True)
    merchant_reference = _text("Your own order id.", allow_null=True)
    payer = _personal("Members: name, email, phone, document, ip, device_id.")
    next_action = _personal("What the payer must do next: `type`, and what belongs to it.")
    failure_reason = _text(allow_null=True)
    metadata = _personal("Yours, returned unchanged.")
    created_at = _moment()
    expires_at = _moment(allow_null=True)
    succeeded_at = _moment(allow_null=True)


class PayoutSerializer(Shown):
    personal = Payout.personal

    id = _text("Begins with pout_.")
    object = Constant("payout")
    account = _text("The account of the setting that it belongs to.")
    status = _text(_open(enums.PayoutStatus.values))
    amount = _amount("What is sent")
    fee = _amount("Reserved on top of the amount", allow_null=True)
    currency = _text()
    country = _text()
    method_code = _text()
    destination = _personal("Where it goes: `type`, and what belongs to it.")
    merchant_reference = _text(allow_null=True)
    failure_reason = _text(allow_null=True)
    refund_id = _text("Set where the payout executes a refund.", allow_null=True)
    metadata = _personal("Yours, returned unchanged.")
    created_at = _moment()
    succeeded_at = _moment(allow_null=True)


class RefundSerializer(Shown):
    personal = Refund.personal

    id = _text("Begins with ref_.")
    object = Constant("refund")
    account = _text("The account of the setting that it belongs to.")
    status = _text(_open(enums.RefundStatus.values))
    payment_id = _text(allow_null=True)
    payout_id = _text("Set where the refund runs as a payout.", allow_null=True)
    amount = _amount("What is given back")
    currency = _text()
    reason = _text(PERSONAL, required=False, allow_null=True)
    created_at = _moment()


class DepositReferenceSerializer(Shown):
    personal = DepositReference.personal

    id = _text("Begins with dep_.")
    object = Constant("deposit_reference")
    account = _text("The account of the setting that it belongs to.")
    status = _text(_open(enums.ActiveStatus.values))
    country = _text()
    currency = _text()
    method_code = _text()
    merchant_reference = _text("Your own id of the payer.", allow_null=True)
    details = Object(help_text=f"What the payer must do: `type`, and what belongs to it. {PERSONAL}", required=False)
    created_at = _moment()


class BalanceSerializer(Shown):
    object = Constant("balance")
    account = _text("The account of the setting that it belongs to.")
    currency = _text()
    available = _amount("What can be paid out")
    pending = _amount("What waits for settlement")
    reserve = _amount("What is held against chargebacks")
    hold = _amount("What payouts and refunds in progress have reserved")
    debt = _amount("What is owed after chargebacks; above zero nothing is paid out")
    updated_at = _moment(allow_null=True)


class PaymentMethodSerializer(serializers.Serializer[Any]):
    """A method as the provider lists it now. Only ``code`` is certain; what else there is, is shown as it came."""

    object = Constant("payment_method")
    code = _text("What `method_code` takes.")

    def to_representation(self, instance: wire.PaymentMethod) -> dict[str, Any]:
        return {**instance.extra, "object": "payment_method", "code": instance.code}


class EventSerializer(Shown):
    id = _text("Begins with evt_; quarantine_ where it could not be understood.")
    object = Constant("event")
    account = _text("The account of the setting that it belongs to.")
    type = _text(_open(enums.EVENT_TYPES))
    created_at = _moment()
    received_at = _moment("When it came here.")
    source = _text(_open(EventSource.values))  # type: ignore[assignment]  # a field, not an option
    state = _text(_open(EventState.values))
    object_kind = _text("What it is about.")
    object_id = _text("Which one; of a balance the currency.")
    data = Object(  # type: ignore[assignment]
        source="*",
        allow_null=True,
        help_text="The payment, payout, refund or balance as it was then. Null where its bytes are not kept any more "
        "or were not understood. What is personal in it is left out for whoever may not see it.",
    )

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown = super().to_representation(instance)
        shown["data"] = _content(instance, sees_personal=self.context["sees_personal"](instance))
        return shown


def _content(event: Any, *, sees_personal: bool) -> dict[str, Any] | None:
    """The object in an event's bytes: the fields that its kind is known to have."""
    if event.state == EventState.QUARANTINED or not event.body:
        return None
    try:
        data = wire.decode_event(bytes(event.body)).data
    except wire.WireError:
        return None
    kind = data.get("object")
    if not isinstance(kind, str) or kind not in wire.EVENT_RESOURCES:
        return None
    model = MIRRORS[kind]
    hidden = () if sees_personal else model.personal
    names = ["id", "object", *(name for name in model.mirrored if name not in hidden)]
    return {name: data[name] for name in names if name in data}


class RefusalSerializer(serializers.Serializer[Any]):
    """The provider's refusal. Its words are not shown: they may repeat what was sent."""

    status_code = serializers.IntegerField()
    type = _text()
    code = _text()
    param = _text(allow_null=True)
    request_id = _text("What the provider's support asks for.")

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        return {name: instance.get(name) for name in self.get_fields()}


class OperationSerializer(Shown):
    """What was asked of the provider, without body, arguments, key and note: they hold personal data."""

    personal = ("actor", "approved_by")

    id = _text("Begins with op_.")
    object = Constant("operation")
    account = _text("The account of the setting that it belongs to.")
    operation = _text("What is to be done, such as create_payout.")
    state = _text(_open(OperationState.values))
    amount = _amount("What it is about", allow_null=True)
    currency = _text("Empty where it has none.")
    merchant_reference = _text("What the provider was told; empty where it has none.")
    target_id = _text("What it is about: the object to be canceled, the payment to be refunded; or empty.")
    result_kind = _text("What came of it; empty until it is done.")
    result_id = _text("Which one; empty until it is done.")
    actor = _text(f"Who asked. {PERSONAL}", required=False)
    approved_by = _text(f"Who let it go out. {PERSONAL}", required=False)
    approved_at = _moment(allow_null=True)
    attempts = serializers.IntegerField(help_text="How often it was sent.")
    error = RefusalSerializer(allow_null=True)
    created_at = _moment()
    first_sent_at = _moment(allow_null=True)
    last_sent_at = _moment(allow_null=True)
    next_attempt_at = _moment(allow_null=True)
    closed_at = _moment(allow_null=True)


class ErrorBodySerializer(serializers.Serializer[Any]):
    type = _text("What kind of error, as the provider's.")
    code = _text("For programs. Stable.")
    message = _text("For people.")
    param = _text("The parameter at fault.", required=False)
    request_id = _text("The same as in the header Request-Id; it stands in the log.")


class ErrorSerializer(serializers.Serializer[Any]):
    error = ErrorBodySerializer()


def list_of(shown: type[serializers.Serializer[Any]]) -> type[serializers.Serializer[Any]]:
    """The envelope of a list, for the description."""
    fields: dict[str, Any] = {
        "object": Constant("list"),
        "has_more": serializers.BooleanField(help_text="Whether there is a further page."),
        "next_cursor": _text("The `cursor` of the next page; null on the last one.", allow_null=True),
        "data": shown(many=True),
    }
    name = shown.__name__.removesuffix("Serializer")
    return type(f"{name}ListSerializer", (serializers.Serializer,), fields)
