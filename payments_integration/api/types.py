"""Add to the OpenAPI description the types and descriptions that the serializers do not give.

The provider's shapes and closed sets are read from its description in ``sandbox/openapi.json``, which is written from
the specification, and are not repeated here. Answers keep values that this version does not know, so their enums are
open: a value of the enum, or any other text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from payments_integration import conf, schemas
from payments_integration.api.errors import CODES

Schema = dict[str, Any]

_PROVIDER = Path(__file__).parents[1] / "sandbox" / "openapi.json"
#: Maps a property, of any component or of one, to the provider's schema that it refers to.
_TYPES: Mapping[str, str] = {
    "currency": "Currency", "country": "Country", "method_family": "MethodFamily", "payer": "Payer",
    "next_action": "NextAction", "details": "NextAction", "metadata": "Metadata",
    "destination": "BankAccountDestination", "Payment.status": "PaymentStatus", "Payout.status": "PayoutStatus",
    "Total.status": "PaymentStatus",
    "Refund.status": "RefundStatus", "DepositReference.status": "DepositReferenceStatus", "Event.type": "EventType",
}  # fmt: skip
_SHAPES = (
    *dict.fromkeys(_TYPES.values()), "NextActionType", "Document", "DocumentType", "AccountType", "ErrorType",
)  # fmt: skip
#: Descriptions of fields whose place in the object the specification does not show.
_NOT_SHOWN = {
    "reference": "What the payer must include in the transfer.",
    "expires_at": "Until when the payer can do it; ISO 8601.",
}
_PERSONAL = "Personal data: left out for users without the permission to see it."
_MINOR = "In minor units."

#: Maps a field or a parameter to its meaning, by name, or by ``component.name`` if it differs there.
DESCRIPTIONS: Mapping[str, str] = {
    "account": "The alias of the account at the provider.",
    "account_holder": "The name that the account is in.",
    "account_number": "The number of the bank account.",
    "account_type": "The kind of bank account.",
    "amount": f"What is asked for, sent or given back. {_MINOR}",
    "amount_received": f"Received so far. {_MINOR}",
    "approved_at": "When another person approved it.",
    "approved_by": f"The other person who approved it. {_PERSONAL}",
    "actor": f"Who asked for it. {_PERSONAL}",
    "attempts": "How often it was sent.",
    "available": f"Can be paid out. {_MINOR}",
    "bank_code": "The code of the bank.",
    "bank_name": "The name of the bank.",
    "bank_transfer": "The account to transfer to.",
    "checkout_url": "The provider's page to send the payer to, in the hosted flow.",
    "closed_at": "When its outcome was known.",
    "code": "For programs; does not change between versions.",
    "country": "ISO 3166-1 alpha-2.",
    "created_at": "The provider's time of its creation.",
    "created_from": "Created then or later.",
    "created_to": "Created then or earlier; of a date without a time, the whole day.",
    "currency": "ISO 4217.",
    "cursor": "The `next_cursor` of the page before.",
    "data": "The rows.",
    "debt": f"Owed after chargebacks. {_MINOR}",
    "destination": "The bank account that gets the money.",
    "details": f"What the payer needs for a transfer; null once erased. {_PERSONAL}",
    "document": "An identity document.",
    "email": "An e-mail address.",
    "error": "Why it failed.",
    "expires_at": "When the payer can no longer pay.",
    "failure_reason": f"Why it failed, as the provider says it. {_PERSONAL}",
    "fee": f"What the provider takes. {_MINOR}",
    "first_sent_at": "When it was first sent.",
    "flow": "`hosted`: the payer pays on `checkout_url`. `s2s`: your page shows `next_action`.",
    "hold": f"Reserved for payouts and refunds in progress. {_MINOR}",
    "holder_document": "The document of the person who holds the account.",
    "holder_name": "The person who holds the account.",
    "id": "Its id.",
    "Operation.id": "Its id in the ledger.",
    "last_sent_at": "When it was last sent.",
    "limit": "How many rows a page has at most.",
    "merchant_reference": "Your own id for the order, or for the payer of a deposit reference.",
    "metadata": "Your own texts, returned unchanged.",
    "method_code": "The `code` of a payment method.",
    "method_family": "The kind of payment method.",
    "name": "A name.",
    "net_amount": f"Received, without the fee. {_MINOR}",
    "next_action": f"What the payer must do next. {_PERSONAL}",
    "next_attempt_at": "When it is sent again or looked up; null: now.",
    "number": "Checked by the rules of its type and country.",
    "object": "The kind of object.",
    "object_id": "The id of the object that it is about.",
    "object_kind": "The kind of the object that it is about.",
    "operation": "The name of the call.",
    "ordering": "Newest or oldest first.",
    "payer": f"The payer. {_PERSONAL}",
    "payment_id": "The payment, such as `pay_…`.",
    "payout_id": "The payout that carries it out.",
    "pending": f"Waits for settlement. {_MINOR}",
    "qr_payload": "The content of the QR code.",
    "reason": f"Why. {_PERSONAL}",
    "received_at": "When it reached this site.",
    "redirect_url": "Where to send the payer.",
    "refund_id": "The refund that this payout carries out.",
    "refunded_amount": f"Given back so far. {_MINOR}",
    "reserve": f"Held against chargebacks. {_MINOR}",
    "result_id": "The object that it made or changed.",
    "result_kind": "The kind of that object.",
    "source": "What brought it.",
    "state": "Where it stands.",
    "status": "Where it stands at the provider.",
    "status_code": "The HTTP status.",
    "succeeded_at": "When it succeeded.",
    "target_id": "The object that it is about.",
    "type": "Its type.",
    "updated_at": "The provider's time of the last change.",
    "voucher_barcode": "The content of the bar code.",
    "voucher_code": "The number on the voucher.",
}


@cache
def shapes() -> Schema:
    """Return the provider's schemas that answers refer to, as components."""
    known = json.loads(_PROVIDER.read_bytes())["components"]["schemas"]
    found = {name: _as_answered(known[name]) for name in _SHAPES}
    codes = sorted({*CODES, *known["ErrorCode"]["enum"]})
    return found | {"ErrorCode": _open({"type": "string", "enum": codes, "description": DESCRIPTIONS["code"]})}


@cache
def _payment_method() -> Schema:
    """Return the properties that a payment method may have in addition to its code."""
    known = json.loads(_PROVIDER.read_bytes())["components"]["schemas"]["PaymentMethod"]["properties"]
    found: Schema = _as_answered({name: schema for name, schema in known.items() if name not in ("object", "code")})
    about = {
        "name": "For people.", "family": "The kind of payment method.", "country": "Where it works.",
        "currency": "In which currency.", "next_action": "What the payer will have to do.", "uses": "What it is for.",
        "available": "Whether it works now.",
    }  # fmt: skip
    return {name: _described(schema, about.get(name, "")) for name, schema in found.items()}


def _open(schema: Schema) -> Schema:
    """Return the closed set as the first alternative, so that clients get its values, and any text as the second."""
    about = {name: schema[name] for name in ("description",) if name in schema}
    return {"anyOf": [{"type": "string", "enum": schema["enum"]}, {"type": "string"}], **about}


def _as_answered(schema: Any) -> Any:
    """Return one of the provider's schemas, opened for everything that a mirror may hold."""
    if isinstance(schema, list):
        return [_as_answered(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("enum"), list):
        return _open(schema)
    # The limits apply only to requests.
    limits = ("x-not-shown", "pattern", "maxProperties", "maxLength")
    found = {name: _as_answered(value) for name, value in schema.items() if name not in limits}
    if isinstance(found.get("properties"), dict):
        for name, each in found["properties"].items():
            is_shown = not schema["properties"][name].get("x-not-shown")
            about = each.get("description", "") if is_shown else _NOT_SHOWN.get(name, "")
            found["properties"][name] = _described({**each, "description": about}, DESCRIPTIONS.get(name, ""))
    return found


def _described(schema: Schema, about: str) -> Schema:
    """Return the schema with its own description, otherwise with this one."""
    return {**schema, "description": schema.get("description") or about}


def _reference(name: str, *, nullable: bool) -> Schema:
    reference: Schema = {"$ref": f"#/components/schemas/{name}"}
    return {"anyOf": [reference, {"type": "null"}]} if nullable else reference


def complete(result: Schema, **kwargs: Any) -> Schema:
    """Add types and descriptions to the document. A post-processing hook of drf-spectacular."""
    components = result["components"]["schemas"]
    for component, schema in components.items():
        is_answer = not component.endswith(("Input", "List", "Error"))
        for name, given in schema.get("properties", {}).items():
            found = {key: value for key, value in given.items() if key not in ("x-spec-enum-id", "title")}
            wanted = _TYPES.get(f"{component}.{name}", _TYPES.get(name))
            if is_answer and wanted is not None and f"{component}.{name}" not in ("Operation.currency",):
                nullable = "null" in found.get("type", ()) or name == "details"
                about = found.get("description", "")
                found = {**_reference(wanted, nullable=nullable), "description": about}
            about = DESCRIPTIONS.get(f"{component}.{name}", DESCRIPTIONS.get(name, ""))
            # The text for a personal field repeats the serializer's note, so it replaces it. Other own texts stay.
            own = found.get("description", "")
            schema["properties"][name] = found if own and own not in about else {**found, "description": about}
    components |= deepcopy(shapes())
    body = components["ErrorBody"]["properties"]
    body["type"] = _described(_reference("ErrorType", nullable=False), body["type"]["description"])
    body["code"] = _described(_reference("ErrorCode", nullable=False), body["code"]["description"])
    components["PaymentMethod"]["properties"] |= deepcopy(_payment_method())
    _describe_event(components)
    for methods in result["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                parameter["description"] = parameter.get("description") or DESCRIPTIONS.get(parameter["name"], "")
                parameter["schema"].pop("x-spec-enum-id", None)
    if conf.current().API_PAYMENT:
        # That function decides what a customer sends, such as the number of an order and no amount.
        about = "What a customer sends, as the project says."
        of_customer = {"type": "object", "additionalProperties": True, "description": about}
        for body in result["paths"]["/payments/"]["post"]["requestBody"]["content"].values():
            body["schema"] = {"anyOf": [body["schema"], of_customer]}
    return result


def _describe_event(components: Schema) -> None:
    """Describe the object in an event: the fields that the provider sent, without the fields that this app adds."""
    variants = []
    for kind in schemas.EVENT_RESOURCES:
        component = kind.title()
        properties = components[component]["properties"]
        names = ["id", "object", *schemas.MIRRORED[kind]]
        snapshot = {name: properties[name] for name in names if name in properties}
        name = f"{component}AtEvent"
        components[name] = {"type": "object", "properties": snapshot, "required": ["object"]}
        variants.append({"$ref": f"#/components/schemas/{name}"})
    data = components["Event"]["properties"]["data"]
    components["Event"]["properties"]["data"] = {
        "anyOf": [*variants, {"type": "null"}],
        "description": data["description"],
    }
