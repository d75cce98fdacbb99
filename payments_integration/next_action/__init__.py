"""Parse what the payer must do next: a payment's ``next_action``, a deposit reference's ``details``.

See the spec, "Shared shapes".

Parsing is lenient: a value of another type than in the spec, or a field that this version does not know, stays in
``further``. The spec does not show on which level ``reference`` and ``expires_at`` are, so both are read from the top
level and from ``bank_transfer``. :mod:`payments_integration.next_action.codes` draws QR codes and bar codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class ActionType(TextChoices):
    REDIRECT = "redirect", _("go to another page")
    QR = "qr", _("scan a QR code")
    VOUCHER = "voucher", _("pay with a voucher")
    BANK_TRANSFER_DETAILS = "bank_transfer_details", _("transfer to a bank account")
    PHONE_OTP = "phone_otp", _("confirm by phone")
    NONE = "none", _("nothing")


#: Each is text; empty if it is missing.
_TEXTS = ("redirect_url", "qr_payload", "voucher_code", "voucher_barcode", "reference", "expires_at")
_BANK_TEXTS = ("bank_name", "account_number", "account_holder")
#: Read from the top level and from ``bank_transfer``.
_EITHER_LEVEL = ("reference", "expires_at")


class BankTransfer(NamedTuple):
    bank_name: str = ""
    account_number: str = ""
    account_holder: str = ""


class NextAction(NamedTuple):
    #: An ActionType, or one that this version does not know.
    type: str
    #: As received. Make it a link only if it is ``http`` or ``https``.
    redirect_url: str = ""
    qr_payload: str = ""
    voucher_code: str = ""
    voucher_barcode: str = ""
    bank_transfer: BankTransfer | None = None
    #: What the payer must include in the payment.
    reference: str = ""
    #: ISO 8601, as received.
    expires_at: str = ""
    #: All other fields.
    further: Mapping[str, Any] = MappingProxyType({})

    @property
    def is_known(self) -> bool:
        return self.type in ActionType.values


def parse(value: object) -> NextAction | None:
    """Return the ``next_action`` or ``details`` of an object; None if it is null or has another shape."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return None
    further = {key: item for key, item in value.items() if key != "type"}
    texts = _taken(further, _TEXTS)
    bank = None
    if isinstance(further.get("bank_transfer"), dict):
        nested = dict(further.pop("bank_transfer"))
        bank = BankTransfer(**_taken(nested, _BANK_TEXTS))
        texts = {**_taken(nested, tuple(name for name in _EITHER_LEVEL if name not in texts)), **texts}
        if nested:
            further["bank_transfer"] = nested
    return NextAction(type=value["type"], bank_transfer=bank, further=further, **texts)


def _taken(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    """Take the texts of these names out of ``values`` and return them."""
    found = [name for name in names if isinstance(values.get(name), str)]
    return {name: values.pop(name) for name in found}
