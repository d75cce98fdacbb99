"""``next_action`` as the payer sees it: a link, a QR code, a voucher, a bank account."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from payments_integration.admin import columns, display, masking
from payments_integration.next_action import ActionType, BankTransfer, NextAction, parse

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Longer ones make a code that no telephone reads from a screen, and take long to draw.
MAX_QR = 1500

Term = tuple["StrOrPromise", str]


def column(name: str, description: StrOrPromise) -> columns.Column:
    """A field that holds a next action; masked: its JSON without what names anybody."""

    def masked(self: Any, obj: Any) -> str:
        return _erased(obj, name) or display.pretty_json(masking.field(name, getattr(obj, name)))

    @columns.masked_by(masked)
    @admin.display(description=description)
    def shown(self: Any, obj: Any) -> str:
        return _erased(obj, name) or render(getattr(obj, name))

    return shown


def render(value: Any) -> str:
    """For a person; what is not of the spec's shape as JSON."""
    action = parse(value)
    if action is None or not action.is_known:
        return display.pretty_json(value)
    terms = [(label, shown) for label, shown in _terms(action) if shown]
    further = display.pretty_json(action.further) if action.further else ""
    return format_html(
        '<div class="pi-next"><p>{}</p>{}{}{}</div>',
        ActionType(action.type).label,
        qr_code(action.qr_payload),
        format_html("<dl>{}</dl>", format_html_join("", "<dt>{}</dt><dd>{}</dd>", terms)) if terms else "",
        further,
    )


def qr_code(payload: str) -> str:
    """A QR code as inline SVG, black on white whatever the theme, with the quiet zone that scanners need."""
    if not payload or len(payload) > MAX_QR:
        return ""
    # Most pages have no code, and most processes no page.
    import segno  # noqa: PLC0415

    try:
        code = segno.make(payload, micro=False)
    except ValueError:
        return ""  # too long in its encoding, or text that has none
    drawn = code.svg_inline(scale=4, border=4, dark="#000", light="#fff", svgclass="pi-qr", title=_("QR code"))
    # Lines and numbers; the only text in it is the title, which is escaped.
    return mark_safe(drawn.replace("<svg ", '<svg role="img" ', 1))  # noqa: S308


def _terms(action: NextAction) -> Iterable[Term]:
    yield _("Address"), display.web_link(action.redirect_url) if action.redirect_url else ""
    yield _("QR content"), _code(action.qr_payload)
    yield _("Voucher code"), _code(action.voucher_code)
    # Its kind is nowhere said, so that it cannot be drawn: the digits are what a cashier types.
    yield _("Barcode"), _code(action.voucher_barcode)
    yield from _bank(action.bank_transfer or BankTransfer())
    yield _("Reference"), _code(action.reference)
    yield _("Valid until"), _moment(action.expires_at)


def _bank(bank: BankTransfer) -> Iterable[Term]:
    yield _("Bank"), _text(bank.bank_name)
    yield _("Account number"), _code(bank.account_number)
    yield _("Account holder"), _text(bank.account_holder)


def _text(value: str) -> str:
    return display.text(value) if value else ""


def _code(value: str) -> str | SafeString:
    """What is copied or typed: in one width, so that 0 and O differ."""
    return format_html('<code class="pi-code">{}</code>', display.text(value)) if value else ""


def _moment(value: str) -> str:
    """In the admin's own format; what is no time as it came."""
    at = None
    with contextlib.suppress(ValueError):
        at = parse_datetime(value)
    return display.moment(at) if at else _text(value)


def _erased(obj: Any, name: str) -> str:
    return str(display.ERASED) if getattr(obj, "erased_at", None) and name in obj.personal else ""
