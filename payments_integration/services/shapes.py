"""The nested shapes of the spec that callers hand in as dicts (spec, "Shared shapes")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from payments_integration import documents
from payments_integration.enums import EVENT_TYPES, AccountType, DocumentType
from payments_integration.services.checks import Checks, Json

#: The only variant of a destination that the spec shows.
DESTINATION_TYPES = ("bank_account",)
MAX_CODE = 64


def payer(checks: Checks, name: str, value: object, country: str) -> Json:
    """``{name, email, phone, document, ip, device_id}``, all optional."""
    given = checks.mapping(name, value, ("name", "email", "phone", "document", "ip", "device_id"))
    read: dict[str, Callable[[str, object], Any]] = {
        "name": checks.text,
        "email": checks.email,
        "phone": checks.phone,
        "document": lambda place, item: document(checks, place, item, country),
        "ip": checks.ip,
        "device_id": checks.text,
    }
    return {field: read[field](f"{name}.{field}", item) for field, item in given.items()}


def document(checks: Checks, name: str, value: object, country: str) -> Json:
    """``{type, number}``, both required."""
    given = checks.mapping(name, value, ("type", "number"))
    if not isinstance(value, Mapping):
        return {}
    kind = checks.choice(f"{name}.type", given.get("type"), DocumentType.values)
    number = checks.text(f"{name}.number", given.get("number"), max_length=documents.MAX_LENGTH, required=True)
    if kind and number:
        try:
            documents.validate(kind, number, country)
        except ValidationError as error:
            checks.fail(f"{name}.number", error.messages[0], "invalid_document")
    return {"type": kind, "number": number}


def destination(checks: Checks, name: str, value: object, country: str) -> Json:
    """``{type: "bank_account", account_number, holder_name, holder_document}``, optional bank_code and
    account_type.
    """
    fields = ("type", "bank_code", "account_number", "account_type", "holder_name", "holder_document")
    given = checks.mapping(name, value, fields)
    if not isinstance(value, Mapping):
        return {}
    found: Json = {"type": checks.choice(f"{name}.type", given.get("type"), DESTINATION_TYPES)}
    if "bank_code" in given:
        found["bank_code"] = checks.text(f"{name}.bank_code", given["bank_code"], max_length=MAX_CODE)
    found["account_number"] = checks.text(
        f"{name}.account_number", given.get("account_number"), max_length=MAX_CODE, required=True
    )
    if "account_type" in given:
        found["account_type"] = checks.choice(f"{name}.account_type", given["account_type"], AccountType.values)
    found["holder_name"] = checks.text(f"{name}.holder_name", given.get("holder_name"), required=True)
    if "holder_document" in given:
        found["holder_document"] = document(checks, f"{name}.holder_document", given["holder_document"], country)
    else:
        checks.fail(f"{name}.holder_document", _("This is required."), "required")
    return found


def event_types(checks: Checks, name: str, value: Any) -> list[str]:
    """Known event types, at least one; repeats are dropped."""
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset) or not value:
        checks.fail(name, _("This must be a list of event types with at least one entry."))
        return []
    unknown = [item for item in value if not isinstance(item, str) or item not in EVENT_TYPES]
    if unknown:
        checks.fail(name, _("It has an unknown event type."), "invalid_choice")
        return []
    # A set has no order of its own: the spec's order makes equal calls equal.
    ordered = sorted(value, key=EVENT_TYPES.index) if isinstance(value, set | frozenset) else value
    return list(dict.fromkeys(str(item) for item in ordered))
