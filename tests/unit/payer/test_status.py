"""How a payment stands, in a payer's words."""

from __future__ import annotations

import pytest

from payments_integration.enums import ENDED_PAYMENT_STATUSES, OPEN_PAYMENT_STATUSES, PaymentStatus
from payments_integration.payer.status import PAYABLE, shown_status
from tests.factories import checkout as rows


@pytest.mark.parametrize("status", PaymentStatus.values)
def test_every_status_has_a_headline_and_a_message(status: str) -> None:
    now = shown_status(rows.unsaved(status=status, amount_received=12_000))
    assert now.status == status
    assert now.headline
    assert now.message
    assert now.is_final is (status not in OPEN_PAYMENT_STATUSES)
    assert (now.tone == "good") is (status in {"succeeded", "overpaid"})
    assert not PAYABLE & ENDED_PAYMENT_STATUSES


def test_only_paid_statuses_are_called_paid() -> None:
    called = {
        s for s in PaymentStatus.values if shown_status(rows.unsaved(status=s, amount_received=1)).headline == "Paid"
    }
    assert called == {"succeeded", "overpaid"}


def test_a_message_names_amounts_that_differ() -> None:
    part = shown_status(rows.unsaved(status="partially_paid", amount_received=4000))
    assert "$4.000" in part.message
    assert "$10.000" in part.message
    over = shown_status(rows.unsaved(status="overpaid", amount_received=12_500))
    assert "$12.500" in over.message
    assert "$10.000" in over.message


def test_refunds_change_the_headline() -> None:
    part = shown_status(rows.unsaved(status="succeeded", amount_received=10_000, refunded_amount=1))
    assert (part.headline, part.tone) == ("Refunded in part", "quiet")
    whole = shown_status(rows.unsaved(status="overpaid", amount_received=12_000, refunded_amount=12_000))
    assert whole.headline == "Refunded"
    # The excess alone was sent back.
    assert (
        shown_status(rows.unsaved(status="overpaid", amount_received=12_000, refunded_amount=2000)).headline
        != "Refunded"
    )
    assert shown_status(rows.unsaved(status="succeeded", amount_received=10_000, refunded_amount=0)).headline == "Paid"


def test_an_unknown_status_promises_nothing() -> None:
    now = shown_status(rows.unsaved(status="<b>\u202equantum"))
    assert (now.tone, now.is_final) == ("open", False)
    assert "<b>" not in now.headline + now.message
    assert "\u202e" not in now.status


def test_a_payment_that_is_not_mirrored_yet_has_a_message() -> None:
    now = shown_status(None)
    assert (now.status, now.tone, now.is_final) == ("", "open", False)
    assert "do not pay again" in now.message
