"""Validate single values before a call is recorded or sent.

``message_dict`` names the argument of the service function. For a nested value, the message begins with its place:
``{"payer": ["document.number: This is not a valid RUT number; …"]}``. A message repeats no value except an amount.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email, validate_ipv46_address
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from payments_integration.money import INT64_MAX, example_for
from payments_integration.permissions import name_of
from payments_integration.validation.urls import is_encoded, is_secure_url

Json = dict[str, Any]
Message = str | Promise

MAX_TEXT = 255
MAX_LONG_TEXT = 2048
MAX_METADATA_KEYS = 20
MAX_METADATA_VALUE = 500
#: The spec limits only the values. This limit is ours, because very long keys make lists too large to be read.
MAX_METADATA_KEY = 100
#: The largest body of a request (spec, "Limits").
MAX_BODY_BYTES = 256 * 1024
#: 1 to 255 printable ASCII characters. No spaces at the ends, because HTTP strips them from a header.
IDEMPOTENCY_KEY = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")
_E164 = re.compile(r"\+[1-9][0-9]{1,14}")


class NestedError(ValidationError):
    """An error inside an argument. Its message begins with the place.

    Attributes:
        place (str): Where, such as ``document.number``.
        reason (str): The message without the place.
    """

    def __init__(self, place: str, reason: str, code: str) -> None:
        super().__init__(f"{place}: {reason}", code=code)
        self.place, self.reason = place, reason


class PythonError(ValidationError):
    """An error whose message says what to write in Python.

    Attributes:
        reason (str): The message for people who do not call this app from Python.
    """

    def __init__(self, message: str, reason: str, code: str) -> None:
        super().__init__(message, code=code)
        self.reason = reason


class Validator:
    """Collect the errors of one call's arguments; :meth:`finish` raises them together.

    Each method returns the value as it is sent. ``name`` is the argument, or ``argument.place.inside``.
    ``document_checks`` is the value of DOCUMENT_CHECKS.
    """

    def __init__(self, document_checks: str = "refuse") -> None:
        self.document_checks = document_checks
        self._errors: dict[str, list[ValidationError]] = {}

    def fail(self, name: str, message: Message, code: str = "invalid") -> None:
        argument, _dot, place = name.partition(".")
        text = str(message)
        error = NestedError(place, text, code) if place else ValidationError(text, code=code)
        self._errors.setdefault(argument, []).append(error)

    def fail_in_python(self, name: str, message: Message, reason: Message) -> None:
        """Do ``fail`` for an argument with a message for Python, and another one for everybody else."""
        self._errors.setdefault(name, []).append(PythonError(str(message), str(reason), "invalid"))

    def has_failed(self, name: str) -> bool:
        """Return True if the argument has an error."""
        return name in self._errors

    def finish(self) -> None:
        if self._errors:
            raise ValidationError(dict(self._errors))

    def text(self, name: str, value: object, *, max_length: int = MAX_TEXT, required: bool = False) -> str:
        """Return text that every database can store: no NUL, no lone surrogate, not too long. Returns "" for None."""
        if value is None:
            if required:
                self.fail(name, _("This is required."), "required")
            return ""
        if not isinstance(value, str):
            self.fail(name, _("This must be text."))
            return ""
        plain = _plain(value)
        if not plain.strip():
            self.fail(name, _("This must not be blank."), "blank")
        elif len(plain) > max_length:
            self.fail(name, _("This must have at most %(max)d characters.") % {"max": max_length}, "max_length")
        elif "\x00" in plain or not _is_utf8(plain):
            self.fail(name, _("This has characters that cannot be stored or sent."), "characters")
        else:
            return plain
        return ""

    def reference(self, name: str, value: object) -> str:
        """Return text without blanks at its ends.

        The provider may strip blanks at the ends, and a look-up would then miss the object.
        """
        if value is not None and not isinstance(value, str):
            # ``Payable`` looks it up again by ``str(…)``.
            words = _("This must be text: pass str(…) of a number or a UUID.")
            self.fail_in_python(name, words, _("This must be text."))
            return ""
        text = self.text(name, value)
        if text != text.strip():
            self.fail(name, _("This must not begin or end with a blank."), "outer_blank")
            return ""
        return text

    def choice(self, name: str, value: object, options: Collection[str], *, required: bool = True) -> str:
        """Return one of ``options``. Returns "" for None if it is not required."""
        if value is None and not required:
            return ""
        if not isinstance(value, str) or value not in options:
            self.fail(name, _("This must be one of %(options)s.") % {"options": ", ".join(options)}, "invalid_choice")
            return ""
        return _plain(value)

    def amount(self, name: str, value: object, currency: object = None) -> int:
        """Return an amount in minor units: an int above zero, within int64; never a bool, a float or text.

        The message states the correct number if ``currency`` is known.
        """
        if isinstance(value, bool) or not isinstance(value, int):
            example = example_for(value, currency)
            values = {"minor": example.minor, "money": example.shown, "call": example.call}
            words = _("This must be an integer in minor units: %(minor)d for %(money)s, %(call)s.")
            reason = _("This must be an integer in minor units: %(minor)d for %(money)s.")
            self.fail_in_python(name, words % values, reason % values)
        elif value <= 0:
            self.fail(name, _("This must be above zero."), "min_value")
        elif value > INT64_MAX:
            self.fail(name, _("This is too large."), "max_value")
        else:
            return int(value)
        return 0

    def email(self, name: str, value: object) -> str:
        return self._django(name, value, validate_email, _("This is not an e-mail address."))

    def ip(self, name: str, value: object) -> str:
        return self._django(name, value, validate_ipv46_address, _("This is not an IP address."))

    def phone(self, name: str, value: object) -> str:
        """Return a phone number in E.164 that is possible in its country."""
        text = self.text(name, value)
        if text and (not _E164.fullmatch(text) or not _is_phone(text)):
            self.fail(name, _("This is not a phone number in E.164 form, such as +56912345678."))
        return text

    def url(self, name: str, value: object, *, required: bool = False) -> str:
        """Return an HTTPS address, or a plain HTTP address of this machine for development."""
        text = self.text(name, value, max_length=MAX_LONG_TEXT, required=required)
        if not is_encoded(text):
            self.fail(name, _("This has characters that an address needs percent-encoded, as %C3%B1."), "invalid_url")
        elif text and not is_secure_url(text):
            self.fail(name, _("This must be an https:// address (http:// only to this machine)."), "invalid_url")
        return text

    def mapping(self, name: str, value: object, known: Collection[str]) -> Mapping[str, Any]:
        """Return a dict with only the known keys. Keys whose value is None are left out."""
        if not isinstance(value, Mapping):
            self.fail(name, _("This must be an object with keys and values."))
            return {}
        for key in value:
            if key not in known:
                self.fail(name, _("It has an unknown key; known are %(known)s.") % {"known": ", ".join(known)})
                break
        return {key: value[key] for key in known if value.get(key) is not None}

    def metadata(self, name: str, value: object) -> Json:
        """Return at most 20 string keys of up to 100 characters, with string values of up to 500 (spec, "Limits")."""
        if not isinstance(value, Mapping):
            self.fail(name, _("This must be an object with keys and values."))
            return {}
        if len(value) > MAX_METADATA_KEYS:
            self.fail(name, _("At most %(max)d keys are allowed.") % {"max": MAX_METADATA_KEYS})
        found: Json = {}
        for key, text in value.items():
            if not isinstance(key, str) or not isinstance(text, str):
                self.fail(name, _("Keys and values must be text."))
            elif not 1 <= len(key) <= MAX_METADATA_KEY or len(text) > MAX_METADATA_VALUE:
                limits = {"key": MAX_METADATA_KEY, "value": MAX_METADATA_VALUE}
                self.fail(name, _("Keys have 1 to %(key)d characters, values at most %(value)d.") % limits)
            elif "\x00" in key + text or not _is_utf8(key + text):
                self.fail(name, _("This has characters that cannot be stored or sent."), "characters")
            else:
                found[_plain(key)] = _plain(text)
                continue
            break
        return found

    def key(self, name: str, value: object) -> str:
        """Return an idempotency key; "" for None."""
        if value is None:
            return ""
        if not isinstance(value, str):
            self.fail(name, _("This must be text."))
            return ""
        plain = _plain(value)
        if not IDEMPOTENCY_KEY.fullmatch(plain):
            self.fail(name, _("This must be 1 to 255 printable ASCII characters, without spaces at the ends."))
            return ""
        return plain

    def actor(self, name: str, value: object) -> str:
        """Return who makes the call: a user as ``id:username``, or text; "" for None or an anonymous user.

        A customer of another kind has a primary key, and perhaps no ``get_username``; then ``str(…)`` is the name.
        """
        if value is not None and not isinstance(value, str):
            pk = getattr(value, "pk", None)
            if pk is None and not hasattr(value, "get_username"):
                self.fail(name, _("This must be a user or text."))
                return ""
            value = "" if pk is None else f"{pk}:{name_of(value)}"[:MAX_TEXT]  # an anonymous user
        return self.text(name, value) if value else ""

    def _django(self, name: str, value: object, validator: Callable[[str], None], message: Message) -> str:
        text = self.text(name, value)
        try:
            if text:
                validator(text)
        except ValidationError:
            # Django's own error contains the value, which no message may repeat.
            self.fail(name, message)
        return text


def _plain(text: str) -> str:
    """Return plain text for a safe string, a member of an enum, or a lazy object of a middleware."""
    # ``str(…)`` would be "Kind.CARD" for some enums. A lazy object says that it is a str, and its slice is one.
    return str.__str__(text[:])


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_phone(text: str) -> bool:
    # The library's tables are large, so they are loaded with the first phone number.
    import phonenumbers  # noqa: PLC0415

    # Until 2019 a 1 stood before mobile numbers of Mexico. Address books keep it.
    text = re.sub(r"^\+521(?=[0-9]{10}$)", "+52", text)
    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(text))
    except phonenumbers.NumberParseException:
        return False


def is_object_id(text: str, prefix: str) -> bool:
    """Return True if an id can be part of a path: visible ASCII without characters that have a meaning in a URL."""
    if not text.startswith(prefix) or not len(prefix) < len(text) <= MAX_TEXT:
        return False
    return text.isascii() and text.isprintable() and not set(text) & set(' /?#%\\"')
