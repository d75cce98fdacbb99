"""Validate request bodies field by field. Every error names its parameter ("Shared shapes", "Limits")."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from .protocol import (
    ACCOUNT_TYPES,
    COUNTRIES,
    CURRENCIES,
    DOCUMENT_TYPES,
    EVENT_TYPES,
    INT64_MAX,
    MAX_METADATA_KEYS,
    MAX_METADATA_VALUE,
    ApiError,
    Json,
)

MAX_TEXT = 500
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")
_E164 = re.compile(r"\+[1-9][0-9]{1,14}")
# A URI by RFC 3986: only ASCII, and each character only in the places that allow it.
_CHAR = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_URI = re.compile(
    rf"[a-z]+://(?:{_CHAR}*|(?:{_CHAR}*@)?\[[0-9A-Fa-f:.]+\](?::[0-9]*)?)(?:/{_CHAR}*)*"
    rf"(?:\?(?:{_CHAR}|[/?])*)?(?:#(?:{_CHAR}|[/?])*)?",
    re.ASCII | re.IGNORECASE,
)


class Fields:
    """One JSON object of a request, read by name. ``null`` counts as absent. Unknown names are refused."""

    def __init__(self, data: Json, known: Iterable[str], prefix: str = "") -> None:
        self._data = data
        self._prefix = prefix
        known = frozenset(known)
        for name in data:
            if name not in known:
                raise self.invalid(name, "This parameter is not known.")

    def invalid(self, name: str, message: str) -> ApiError:
        """Return a parameter_invalid for this field."""
        return ApiError("parameter_invalid", message, param=self._prefix + name)

    def require(self, *names: str) -> None:
        """Raise parameter_missing for the first of these names that is absent."""
        for name in names:
            if self._data.get(name) is None:
                raise ApiError("parameter_missing", "This parameter is required.", param=self._prefix + name)

    def text(self, name: str, *, max_length: int = MAX_TEXT) -> str | None:
        """Return a string that is not blank; None if absent."""
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.invalid(name, "This must be a string that is not empty.")
        if len(value) > max_length:
            raise self.invalid(name, f"This must have at most {max_length} characters.")
        return value

    def choice(self, name: str, options: tuple[str, ...]) -> str | None:
        """Return one of a fixed set of strings; None if absent."""
        value = self._data.get(name)
        if value is not None and (not isinstance(value, str) or value not in options):
            raise self.invalid(name, f"This must be one of {', '.join(options)}.")
        return value

    def amount(self, name: str = "amount") -> int | None:
        """Return an integer in minor units, above zero and within int64; None if absent.

        Refuses a bool, a float and a string.
        """
        value = self._data.get(name)
        if value is None:
            return None
        if type(value) is not int:
            raise self.invalid(name, "This must be an integer in minor units.")
        if not 0 < value <= INT64_MAX:
            raise ApiError(
                "amount_out_of_range", "The amount must be above zero and fit int64.", param=self._prefix + name
            )
        return value

    def sub(self, name: str, known: Iterable[str]) -> Fields | None:
        """Return a nested object; None if absent."""
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.invalid(name, "This must be an object.")
        return Fields(value, known, f"{self._prefix}{name}.")

    def present(self, *names: str) -> Json:
        """Return a copy of the named fields that are present."""
        return {name: self._data[name] for name in names if self._data.get(name) is not None}

    # fields and objects of the API

    def country(self) -> str:
        """Return a supported country; empty if absent."""
        return self.choice("country", COUNTRIES) or ""

    def currency(self) -> str:
        """Return a supported currency; empty if absent."""
        return self.choice("currency", CURRENCIES) or ""

    def document(self, name: str) -> Json | None:
        """Return ``{type, number}``, both required; None if absent."""
        fields = self.sub(name, ("type", "number"))
        if fields is None:
            return None
        fields.require("type", "number")
        fields.choice("type", DOCUMENT_TYPES)
        fields.text("number", max_length=64)
        return fields.present("type", "number")

    def payer(self) -> Json | None:
        """Return the payer, whose fields are all optional; None if absent."""
        names = ("name", "email", "phone", "document", "ip", "device_id")
        fields = self.sub("payer", names)
        if fields is None:
            return None
        texts = {name: fields.text(name) for name in ("name", "email", "phone", "ip", "device_id")}
        if texts["email"] and not _EMAIL.fullmatch(texts["email"]):
            raise fields.invalid("email", "This is not an e-mail address.")
        if texts["phone"] and not _E164.fullmatch(texts["phone"]):
            raise fields.invalid("phone", "This is not an E.164 number such as +56912345678.")
        fields.document("document")
        return fields.present(*names)

    def destination(self) -> Json | None:
        """Return a bank account; None if absent. Refuses other types, because the provider's document shows none."""
        names = ("type", "bank_code", "account_number", "account_type", "holder_name", "holder_document")
        fields = self.sub("destination", names)
        if fields is None:
            return None
        fields.require("type", "account_number", "holder_name", "holder_document")
        fields.choice("type", ("bank_account",))
        fields.text("bank_code", max_length=64)
        fields.text("account_number", max_length=64)
        fields.choice("account_type", ACCOUNT_TYPES)
        fields.text("holder_name")
        fields.document("holder_document")
        return fields.present(*names)

    def metadata(self) -> Json:
        """Return at most 20 keys, each with a string of at most 500 characters; empty if absent."""
        value = self._data.get("metadata")
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.invalid("metadata", "This must be an object.")
        if len(value) > MAX_METADATA_KEYS:
            raise self.invalid("metadata", f"At most {MAX_METADATA_KEYS} keys are allowed.")
        for key, text in value.items():
            if not isinstance(text, str):
                raise self.invalid(f"metadata.{key}", "Values must be strings.")
            if len(text) > MAX_METADATA_VALUE:
                raise self.invalid(f"metadata.{key}", f"Values have at most {MAX_METADATA_VALUE} characters.")
        return dict(value)

    def return_url(self) -> str | None:
        """Return the URL for the payer's return. Only http or https, so that a browser never runs it as a script."""
        url = self.text("return_url", max_length=2_048)
        if url is not None and not is_web_url(url):
            raise self.invalid("return_url", "This must be an absolute http or https URL.")
        return url

    def endpoint_url(self) -> str:
        """Return an https URL. Accepts http for loopback hosts, so that local development works."""
        self.require("url")
        url = self.text("url", max_length=2_048) or ""
        if not is_web_url(url):
            raise self.invalid("url", "This must be an absolute HTTPS URL.")
        parts = urlsplit(url)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise self.invalid("url", "Only HTTPS is allowed; plain http only for loopback hosts.")
        return url

    def event_types(self) -> list[str]:
        """Return known event types without repeats, in the given order; all types if absent."""
        value = self._data.get("events")
        if value is None:
            return list(EVENT_TYPES)
        if not isinstance(value, list) or not value:
            raise self.invalid("events", "This must be a list of event types that is not empty.")
        for name in value:
            if not isinstance(name, str) or name not in EVENT_TYPES:
                raise self.invalid("events", f"{name!r} is not an event type.")
        return list(dict.fromkeys(value))


def is_web_url(url: str) -> bool:
    """Return True if this is an absolute http(s) URL with a host that follows RFC 3986."""
    if not _URI.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return True if a host name is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
