"""Validate what callers pass as dicts or lists: payer, document, destination, event types (spec, "Shared shapes")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from payments_integration.enums import ACCOUNT_TYPES, DOCUMENT_TYPES, EVENT_TYPES
from payments_integration.validation import documents
from payments_integration.validation.validator import Json, Validator

#: The only variant of a destination that the spec shows.
DESTINATION_TYPES = ("bank_account",)
MAX_CODE = 64


def payer(validator: Validator, name: str, value: object, country: str) -> Json:
    """Return the payer as it is sent: ``{name, email, phone, document, ip, device_id}``, all optional."""
    given = validator.mapping(name, value, ("name", "email", "phone", "document", "ip", "device_id"))
    read: dict[str, Callable[[str, object], Any]] = {
        "name": validator.text,
        "email": validator.email,
        "phone": validator.phone,
        "document": lambda place, item: document(validator, place, item, country),
        "ip": validator.ip,
        "device_id": validator.text,
    }
    return {field: read[field](f"{name}.{field}", item) for field, item in given.items()}


def document(validator: Validator, name: str, value: object, country: str) -> Json:
    """Return the document as it is sent: ``{type, number}``, both required."""
    given = validator.mapping(name, value, ("type", "number"))
    if not isinstance(value, Mapping):
        return {}
    kind = validator.choice(f"{name}.type", given.get("type"), DOCUMENT_TYPES)
    number = validator.text(f"{name}.number", given.get("number"), max_length=documents.MAX_LENGTH, required=True)
    if kind and number and not documents.is_valid(kind, number, country, checks=validator.document_checks):
        words = _("This is not a valid %(type)s number; write it with its check digit if it has one.")
        validator.fail(f"{name}.number", words % {"type": kind}, "invalid_document")
    return {"type": kind, "number": number}


def destination(validator: Validator, name: str, value: object, country: str) -> Json:
    """Return the destination as it is sent.

    ``{type: "bank_account", account_number, holder_name, holder_document}``; ``bank_code`` and ``account_type`` are
    optional.
    """
    fields = ("type", "bank_code", "account_number", "account_type", "holder_name", "holder_document")
    given = validator.mapping(name, value, fields)
    if not isinstance(value, Mapping):
        return {}
    found: Json = {"type": validator.choice(f"{name}.type", given.get("type"), DESTINATION_TYPES)}
    if "bank_code" in given:
        found["bank_code"] = validator.text(f"{name}.bank_code", given["bank_code"], max_length=MAX_CODE)
    found["account_number"] = validator.text(
        f"{name}.account_number", given.get("account_number"), max_length=MAX_CODE, required=True
    )
    if "account_type" in given:
        found["account_type"] = validator.choice(f"{name}.account_type", given["account_type"], ACCOUNT_TYPES)
    found["holder_name"] = validator.text(f"{name}.holder_name", given.get("holder_name"), required=True)
    if "holder_document" in given:
        found["holder_document"] = document(validator, f"{name}.holder_document", given["holder_document"], country)
    else:
        validator.fail(f"{name}.holder_document", _("This is required."), "required")
    return found


def event_types(validator: Validator, name: str, value: Any) -> list[str]:
    """Return one or more known event types without repetitions."""
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset) or not value:
        validator.fail(name, _("This must be a list of event types with at least one entry."))
        return []
    unknown = [item for item in value if not isinstance(item, str) or item not in EVENT_TYPES]
    if unknown:
        validator.fail(name, _("It has an unknown event type."), "invalid_choice")
        return []
    # A set has no order. Use the spec's order, so that equal calls send equal requests.
    ordered = sorted(value, key=EVENT_TYPES.index) if isinstance(value, set | frozenset) else value
    return list(dict.fromkeys(str(item) for item in ordered))
