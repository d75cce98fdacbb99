"""Show a next action as the payer sees it: its kind in words, its numbers to copy, its QR code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from payments_integration.admin.shared import display, masking, people
from payments_integration.admin.shared.buttons import may
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.models import Mirror
from payments_integration.next_action import ActionType, BankTransfer, NextAction, parse
from payments_integration.next_action.codes import qr_code
from payments_integration.validation.text import StrOrPromise


@dataclass(frozen=True, slots=True)
class Shown(Section):
    template: ClassVar[str] = "admin/payments_backoffice/includes/shown_to_payer.html"

    title: StrOrPromise
    content: str
    is_folded: bool = False


def section(page: Page, title: StrOrPromise, obj: Mirror, name: str, *, is_folded: bool = False) -> Iterable[Section]:
    """Yield the next action in the field ``name`` of a mirror, masked if the user may not see it.

    Yields nothing if the field is empty, or says that the payer has nothing to do.
    """
    if people.is_erased(obj, name):
        yield Shown(title, str(display.ERASED), is_folded)
    elif (value := getattr(obj, name)) and not _is_nothing(value):
        yield Shown(title, as_html(value, is_masked=not may(page.request, "view_personal_data")), is_folded)


def _is_nothing(value: Any) -> bool:
    action = parse(value)
    return action is not None and action.type == ActionType.NONE and not action.further


def as_html(value: Any, *, is_masked: bool = False) -> str:
    """Return the next action as HTML; as fields if it does not follow the spec."""
    if is_masked:
        value = masking.field("next_action", value)
    action = parse(value)
    if action is None or not action.is_known:
        return people.as_html(value)
    terms = [(label, shown) for label, shown in _terms(action) if shown]
    further = people.as_html(action.further) if action.further else ""
    return format_html(
        '<div class="pi-next"><p>{}</p>{}{}{}</div>',
        ActionType(action.type).label,
        "" if is_masked else qr_code(action.qr_payload, css_class="pi-qr"),
        format_html("<dl>{}</dl>", format_html_join("", "<dt>{}</dt><dd>{}</dd>", terms)) if terms else "",
        further,
    )


def _terms(action: NextAction) -> Iterable[tuple[StrOrPromise, str]]:
    yield _("Voucher code"), _number(action.voucher_code)
    # The spec does not say which kind of bar code it is, so show the digits, which a cashier can type.
    yield _("Barcode"), _number(action.voucher_barcode)
    yield _("Reference"), _number(action.reference)
    bank = action.bank_transfer or BankTransfer()
    yield _("Account number"), _number(bank.account_number)
    yield _("Account holder"), _plain(bank.account_holder)
    yield _("Bank"), _plain(bank.bank_name)
    yield _("QR content"), _code(action.qr_payload)
    yield _("Address"), display.web_link(action.redirect_url) if action.redirect_url else ""
    yield _("Valid until"), _moment(action.expires_at)


def _plain(value: str) -> str:
    return display.text(value) if value else ""


def _number(value: str) -> str | SafeString:
    """Show a number that a payer names on the phone in large type. One click selects all of it."""
    return format_html('<code class="pi-code pi-copied">{}</code>', display.text(value)) if value else ""


def _code(value: str) -> str | SafeString:
    """Show text to copy or type in a monospaced font, so that 0 and O differ."""
    return format_html('<code class="pi-code">{}</code>', display.text(value)) if value else ""


def _moment(value: str) -> str:
    """Return a time in the admin's format; other text unchanged."""
    at = None
    with contextlib.suppress(ValueError):
        at = parse_datetime(value)
    return display.moment(at) if at else _plain(value)
