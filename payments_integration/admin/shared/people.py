"""Show payers, recipients and other JSON from the provider as fields with names, never as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Page, once
from payments_integration.enums import AccountType, DocumentType
from payments_integration.models import Mirror, Payment, Refund
from payments_integration.validation.text import StrOrPromise

#: A label and its value. The value is escaped.
Fact = tuple[StrOrPromise, str]

#: The names of the spec's members in the order in which they are shown: who, then where, then technical values.
_FIRST: dict[str, StrOrPromise] = {
    "name": _("Name"),
    "holder_name": _("Account holder"),
    "document": _("Document"),
    "holder_document": _("Document"),
    "email": _("E-mail"),
    "phone": _("Phone"),
    "bank_name": _("Bank"),
    "bank_code": _("Bank"),
    "account_number": _("Account number"),
    "account_type": _("Account type"),
    "address": _("Address"),
    "street": _("Street"),
    "city": _("City"),
    "postal_code": _("Postal code"),
    "country": _("Country"),
}
_LAST: dict[str, StrOrPromise] = {
    "type": _("Type"),
    "number": _("Number"),
    "ip": _("IP address"),
    "device_id": _("Device"),
}
_LABELS = {**_FIRST, **_LAST}
_ORDER = {name: place for place, name in enumerate((*_FIRST, "", *_LAST))}
_WORDS: dict[str, dict[Any, StrOrPromise]] = {
    "type": {"bank_account": _("bank account"), **dict(DocumentType.choices)},
    "account_type": dict(AccountType.choices),
}


def name(page: Page, obj: Mirror, field: str) -> str:
    """Return the person's name for a headline: masked if the user may not see it, "erased", or "" if unknown."""
    if is_erased(obj, field):
        return str(display.ERASED)
    found = name_in(getattr(obj, field))
    return page.personal(found) if found else ""


def known_payment(refund: Refund) -> Payment | None:
    """Return a refund's payment; None if it has not arrived yet. It may arrive after its refund.

    Django keeps a payment that it found, but not that there is none.
    """
    return once(refund, "pi_payment", lambda: _read_payment(refund))


def _read_payment(refund: Refund) -> Payment | None:
    try:
        return refund.payment
    except Payment.DoesNotExist:
        return None


def name_in(value: Any) -> str:
    """Return the person that JSON of any shape is about: the payer's or holder's name, otherwise the e-mail, or ""."""
    members = (value.get(key) for key in ("name", "holder_name", "email")) if isinstance(value, dict) else ()
    return next((text for text in members if isinstance(text, str) and text.strip()), "")


def is_erased(obj: Any, name: str) -> bool:
    return bool(getattr(obj, "erased_at", None)) and name in obj.personal


def facts(value: Any) -> list[Fact]:
    """Return the members of a JSON value with their labels. Empty ones are left out; unknown ones keep their key."""
    return [(label, shown) for label, shown in _facts(value, "") if shown]


def as_html(value: Any) -> str:
    """Return the members of a JSON value as a list of definitions; a dash if there are none."""
    found = facts(value)
    if not found:
        return display.EMPTY
    return format_html('<dl class="pi-terms">{}</dl>', format_html_join("", "<dt>{}</dt><dd>{}</dd>", found))


def _facts(value: Any, label: str) -> Iterator[tuple[str, str]]:
    """Yield one line for each value within, under the names that lead to it."""
    if isinstance(value, dict):
        for key, item in sorted(value.items(), key=lambda member: _ORDER.get(str(member[0]), _ORDER[""])):
            yield from _member(str(key), item, label)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value, 1):
            yield from _facts(item, _joined(label, str(number)))
    else:
        yield label or gettext("Value"), _shown(value)


def _member(key: str, value: Any, outer: str) -> Iterator[tuple[str, str]]:
    label = _joined(outer, str(_LABELS[key]) if key in _LABELS else display.text(key))
    if _is_document(value):
        # People write a document in one line.
        words = [_shown(value["type"], "type"), _shown(value["number"])]
        yield label, format_html_join(" ", "{}", ((word,) for word in words if word))
    elif isinstance(value, dict | list):
        yield from _facts(value, label)
    else:
        yield label, _shown(value, key)


def _is_document(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"type", "number"}
        and not any(isinstance(item, dict | list) for item in value.values())
    )


def _joined(outer: str, inner: str) -> str:
    return f"{outer} · {inner}" if outer else inner


def _shown(value: Any, key: str = "") -> str:
    if isinstance(value, list):
        return format_html_join(", ", "{}", ((shown,) for shown in map(_shown, value) if shown))
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if isinstance(value, str):
        value = _WORDS.get(key, {}).get(value, value)
    form = '<code class="pi-code">{}</code>' if key == "account_number" else "{}"
    return format_html(form, display.text(value))
