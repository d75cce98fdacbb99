from __future__ import annotations

from typing import Any

import pytest

from payments_integration.sandbox import Engine, SandboxError

from .support import DEPOSIT, PAYER, Client, types_of


def test_a_transfer_creates_a_succeeded_payment(engine: Engine, client: Client) -> None:
    reference = client.make("/deposit-references", {**DEPOSIT, "payer": PAYER, "merchant_reference": "user-1"})
    assert reference["status"] == "active"
    assert reference["details"]["type"] == "bank_transfer_details"
    assert set(reference["details"]["bank_transfer"]) == {"bank_name", "account_number", "account_holder"}
    payment = engine.transfer(reference["id"], 5_000)
    assert (payment["status"], payment["amount"], payment["amount_received"], payment["flow"]) == (
        "succeeded", 5_000, 5_000, "deposit_reference",
    )  # fmt: skip
    assert (payment["method_family"], payment["method_code"]) == ("deposit_reference", "cl_deposit")
    assert (payment["payer"], payment["merchant_reference"]) == (PAYER, "user-1")
    assert payment["next_action"] == {"type": "none", "reference": reference["details"]["reference"]}
    assert (payment["fee"], engine.balances["CLP"]["available"]) == (40, 4_960)
    assert types_of(engine) == ["payment.created", "payment.succeeded", "balance.updated"]
    assert client.get(f"/payments/{payment['id']}").json == payment
    assert client.get(f"/deposit-references/{reference['id']}").json == reference


def test_a_deposit_reference_takes_several_transfers(engine: Engine, client: Client) -> None:
    reference = client.make("/deposit-references", DEPOSIT)
    ids = {engine.transfer(reference["id"], amount)["id"] for amount in (1, 2, 3)}
    assert len(ids) == len(engine.payments) == 3


def test_a_disabled_deposit_reference_refuses_transfers(engine: Engine, client: Client) -> None:
    reference = client.make("/deposit-references", DEPOSIT)
    assert engine.disable_deposit_reference(reference["id"])["status"] == "disabled"
    assert client.get(f"/deposit-references/{reference['id']}").json["status"] == "disabled"
    with pytest.raises(SandboxError):
        engine.transfer(reference["id"], 5_000)
    assert engine.payments == {}


@pytest.mark.parametrize("amount", [0, -5, 1.5, True, "10"])
def test_an_invalid_amount_of_a_transfer_is_refused(engine: Engine, client: Client, amount: Any) -> None:
    reference = client.make("/deposit-references", DEPOSIT)
    with pytest.raises(SandboxError):
        engine.transfer(reference["id"], amount)


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"country": None}, "parameter_missing", "country"),
        ({"currency": None}, "parameter_missing", "currency"),
        ({"method_code": None}, "parameter_missing", "method_code"),
        ({"method_code": "cl_khipu"}, "method_not_available", "method_code"),
        ({"currency": "USD"}, "method_not_available", "method_code"),
        ({"payer": {"phone": "1"}}, "parameter_invalid", "payer.phone"),
        ({"amount": 5}, "parameter_invalid", "amount"),
    ],
)
def test_an_invalid_deposit_reference_is_refused(
    client: Client, engine: Engine, changes: dict[str, Any], code: str, param: str
) -> None:
    reply = client.post("/deposit-references", {**DEPOSIT, **changes})
    assert (reply.error["code"], reply.error["param"]) == (code, param)
    assert engine.deposit_references == {}
