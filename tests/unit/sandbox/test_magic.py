"""Magic values: payments that go their way by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine
from payments_integration.sandbox.magic import TABLE, Magic

from .support import CARD, TRANSFER, Client, types_of

#: What each row comes to: the statuses after 2, 4 and 61 seconds.
OUTCOMES: dict[str, tuple[str, str, str]] = {
    "paid": ("created", "succeeded", "succeeded"),
    "declined": ("created", "failed", "failed"),
    "expired": ("created", "expired", "expired"),
    "late": ("created", "expired", "succeeded"),
    "partial": ("created", "partially_paid", "partially_paid"),
    "overpaid": ("created", "overpaid", "overpaid"),
    "held": ("created", "on_hold", "succeeded"),
    "chargeback": ("created", "succeeded", "chargeback"),
}


def body_of(row: Magic) -> dict[str, Any]:
    return TRANSFER if row.families == ("bank_transfer",) else CARD


def choices(row: Magic) -> list[tuple[str, dict[str, Any]]]:
    """Every way to choose a row, with its parameter."""
    return [
        ("payer.email", {"payer": {"email": row.email}}),
        ("payer.email", {"payer": {"email": row.email.upper()}}),
        ("merchant_reference", {"merchant_reference": row.reference}),
        ("merchant_reference", {"merchant_reference": f"{row.reference}-1042"}),
        ("amount", {"amount": row.amount}),
    ]


def test_no_value_stands_twice() -> None:
    assert [row.name for row in TABLE] == list(OUTCOMES)
    assert len({row.amount for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_value_leads_a_payment_to_its_end(engine: Engine, client: Client, clock: Clock, row: Magic) -> None:
    for _, values in choices(row):
        payment = client.make("/payments", {**body_of(row), **values})
        found = [payment["status"]]
        for seconds in (2, 2, 57):
            clock.advance(seconds)
            found.append(client.get(f"/payments/{payment['id']}").json["status"])
        assert tuple(found[1:]) == OUTCOMES[row.name], values
    assert engine.audit() == []


def test_after_a_long_jump_of_the_clock_all_steps_are_taken_in_order(engine: Engine, client: Client) -> None:
    payment = client.card(payer={"email": "chargeback@sandbox.example"})
    client.card(amount=99_000_002)
    engine.clock.advance(86_400)
    assert engine.payments[payment["id"]]["status"] == "chargeback"
    assert types_of(engine, "payment")[2:] == [
        "payment.processing", "payment.succeeded", "payment.failed", "payment.chargeback",
    ]  # fmt: skip


def test_half_and_twice_the_amount(engine: Engine, client: Client) -> None:
    half, twice = client.bank(amount=99_000_005), client.bank(merchant_reference="sandbox-overpaid", amount=700)
    engine.clock.advance(3)
    assert engine.payments[half["id"]]["amount_received"] == 49_500_002
    assert engine.payments[twice["id"]]["amount_received"] == 1_400
    declined = client.card(amount=99_000_002)
    engine.clock.advance(3)
    assert engine.payments[declined["id"]]["failure_reason"] == "declined"


@pytest.mark.parametrize(
    "values",
    [
        {"merchant_reference": "sandbox-declinedx"},
        {"merchant_reference": "my-sandbox-declined"},
        {"payer": {"email": "declined@sandbox.example.org"}},
        {"payer": {"name": "declined@sandbox.example"}},
        {"amount": 99_000_000},
        {"amount": 99_000_009},
    ],
)
def test_other_values_wait_for_the_payer(engine: Engine, client: Client, values: dict[str, Any]) -> None:
    payment = client.card(**values)
    engine.clock.advance(1_000)
    assert engine.payments[payment["id"]]["status"] == "created"


@pytest.mark.parametrize("row", [row for row in TABLE if row.families], ids=lambda row: row.name)
def test_a_method_that_cannot_take_the_steps_is_refused(engine: Engine, client: Client, row: Magic) -> None:
    wrong = CARD if body_of(row) == TRANSFER else TRANSFER
    for param, values in choices(row):
        reply = client.post("/payments", {**wrong, **values})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "parameter_invalid", param)
        assert row.effect in reply.error["message"]
        assert row.families[0] in reply.error["message"]
    assert engine.payments == {}


def test_what_cannot_be_halved_or_expire_is_refused(client: Client) -> None:
    half = client.post("/payments", {**TRANSFER, "amount": 1, "payer": {"email": "partial@sandbox.example"}})
    assert (half.error["code"], half.error["param"]) == ("amount_out_of_range", "amount")
    direct = {**CARD, "method_code": "cl_card_direct", "flow": "s2s", "merchant_reference": "sandbox-late"}
    refused = client.post("/payments", direct)
    assert (refused.error["code"], refused.error["param"]) == ("parameter_invalid", "merchant_reference")
    assert client.post("/payments", {**direct, "flow": "hosted"}).status == 201


def test_the_email_decides_before_the_reference_and_the_amount(engine: Engine, client: Client) -> None:
    payment = client.card(
        payer={"email": "expired@sandbox.example"}, merchant_reference="sandbox-paid", amount=99_000_002
    )
    engine.clock.advance(3)
    assert engine.payments[payment["id"]]["status"] == "expired"


def test_a_person_or_a_request_may_be_faster(engine: Engine, client: Client) -> None:
    paid, canceled = client.card(amount=99_000_002), client.card(amount=99_000_008)
    engine.pay(paid["id"])
    client.post(f"/payments/{canceled['id']}/cancel")
    engine.clock.advance(61)
    assert engine.payments[paid["id"]]["status"] == "succeeded"
    assert engine.payments[canceled["id"]]["status"] == "canceled"
    assert all(not internals.steps for internals in engine.default_project.state.payments.internals.values())


def test_automatic_progress_does_not_pay_what_is_declined(clock: Clock) -> None:
    engine = Engine(clock=clock, auto_progress=1.0, rate_limits=False)
    client = Client(engine)
    direct = {"method_code": "cl_card_direct", "flow": "s2s"}
    declined, other = client.card(**direct, amount=99_000_002), client.card(**direct)
    clock.advance(2)
    assert [engine.payments[payment["id"]]["status"] for payment in (declined, other)] == ["processing", "succeeded"]
    clock.advance(1)
    assert engine.payments[declined["id"]]["status"] == "failed"
