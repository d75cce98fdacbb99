"""What the payer must do next, read leniently (spec, "Shared shapes")."""

from __future__ import annotations

from typing import Any

import pytest

from payments_integration.next_action import ActionType, BankTransfer, NextAction, parse

BANK = {"bank_name": "Banco", "account_number": "000123", "account_holder": "Shop"}


def test_every_type_of_the_spec_is_known() -> None:
    assert set(ActionType.values) == {"redirect", "qr", "voucher", "bank_transfer_details", "phone_otp", "none"}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"type": "none"}, NextAction("none")),
        ({"type": "redirect", "redirect_url": "https://a/"}, NextAction("redirect", redirect_url="https://a/")),
        ({"type": "qr", "qr_payload": "000201"}, NextAction("qr", qr_payload="000201")),
        (
            {"type": "voucher", "voucher_code": "12", "voucher_barcode": "34", "reference": "r", "expires_at": "t"},
            NextAction("voucher", voucher_code="12", voucher_barcode="34", reference="r", expires_at="t"),
        ),
        # Where these two stand is not shown.
        (
            {"type": "bank_transfer_details", "bank_transfer": BANK, "reference": "r", "expires_at": "t"},
            NextAction("bank_transfer_details", bank_transfer=BankTransfer(**BANK), reference="r", expires_at="t"),
        ),
        (
            {"type": "bank_transfer_details", "bank_transfer": {**BANK, "reference": "r", "expires_at": "t"}},
            NextAction("bank_transfer_details", bank_transfer=BankTransfer(**BANK), reference="r", expires_at="t"),
        ),
        # Where they stand in both places with different texts, both are kept.
        (
            {"type": "bank_transfer_details", "bank_transfer": {"reference": "in"}, "reference": "out"},
            NextAction(
                "bank_transfer_details",
                bank_transfer=BankTransfer(),
                reference="out",
                further={"bank_transfer": {"reference": "in"}},
            ),
        ),
        # What is not of the spec's type or name is kept apart.
        (
            {"type": "qr", "qr_payload": 7, "bank_transfer": ["x"], "hint": None},
            NextAction("qr", further={"qr_payload": 7, "bank_transfer": ["x"], "hint": None}),
        ),
        ({"type": "crystal_ball", "vision": 1}, NextAction("crystal_ball", further={"vision": 1})),
        (None, None),
        ([], None),
        ("redirect", None),
        ({}, None),
        ({"type": None}, None),
        ({"type": ["qr"]}, None),
    ],
)
def test_each_action_type_is_parsed(value: Any, found: NextAction | None) -> None:
    before = repr(value)
    assert parse(value) == found
    assert repr(value) == before  # the mirrored value is not touched


def test_an_unknown_type_is_not_known() -> None:
    known, unknown = parse({"type": "qr"}), parse({"type": "crystal_ball"})
    assert known is not None
    assert known.is_known
    assert unknown is not None
    assert not unknown.is_known
