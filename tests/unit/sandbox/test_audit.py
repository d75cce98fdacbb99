"""The audit finds no errors after random actions, and finds every error that a test makes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from payments_integration.sandbox import Clock, Engine, SandboxError
from payments_integration.sandbox.ledger import Entry

from .support import ACCOUNT, DEPOSIT, Client

PAYMENT_ACTIONS = ("open_checkout", "process", "pay", "fail", "expire", "hold", "chargeback")
PAYOUT_ACTIONS = ("process_payout", "succeed_payout", "fail_payout", "return_payout", "hold_payout", "delay_payout")
REFUND_ACTIONS = ("process_refund", "succeed_refund", "fail_refund", "return_refund", "cancel_refund")
METHODS = ("cl_webpay_card", "cl_bank_transfer", "cl_servipag", "cl_card_direct", "cl_mach")


class RandomActions:
    """Random but repeatable actions on one engine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        clock = Clock()
        clock.freeze()
        self.engine = Engine(clock=clock, rate_limits=False, auto_progress=self.random.choice([None, 30]))
        self.client = Client(self.engine)
        self.engine.fund("CLP", 20_000)
        self.reference = self.client.make("/deposit-references", DEPOSIT)["id"]

    def step(self) -> None:
        actions: list[Callable[[], Any]] = [
            self.create, self.create, self.refund, self.refund, self.payout, self.cancel, self.money,
            lambda: self.act(self.engine.payments, PAYMENT_ACTIONS), lambda: self.act(self.engine.payments, ("pay",)),
            lambda: self.act(self.engine.payments, ("pay",)),
            lambda: self.act(self.engine.payouts, PAYOUT_ACTIONS),
            lambda: self.act(self.engine.refunds, REFUND_ACTIONS),
            lambda: self.engine.clock.advance(self.random.choice([1, 40, 4_000])),
            lambda: self.engine.transfer(self.reference, self.random.randint(1, 5_000)),
        ]  # fmt: skip
        with contextlib.suppress(SandboxError):
            self.random.choice(actions)()

    def one_of(self, items: dict[str, Any]) -> str:
        return self.random.choice(list(items) or ["none"])

    def create(self) -> None:
        body = {
            "amount": self.random.randint(1, 9_000), "currency": "CLP", "country": "CL",
            "method_code": self.random.choice(METHODS), "flow": self.random.choice(["hosted", "s2s"]),
        }  # fmt: skip
        self.client.make("/payments", body)

    def act(self, items: dict[str, Any], names: tuple[str, ...]) -> None:
        name, object_id = self.random.choice(names), self.one_of(items)
        amounts = [self.random.randint(1, 9_000)] if name == "pay" and self.random.random() < 0.5 else []
        getattr(self.engine, name)(object_id, *amounts)

    def refund(self) -> None:
        body: dict[str, Any] = {"payment_id": self.one_of(self.engine.payments), "destination": ACCOUNT}
        if self.random.random() < 0.6:
            body["amount"] = self.random.randint(1, 4_000)
        self.client.post("/refunds", body)

    def payout(self) -> None:
        amount = self.random.randint(1, 20_000)
        body = {"amount": amount, "currency": "CLP", "country": "CL", "method_code": "cl_bank_transfer"}
        self.client.post("/payouts", {**body, "destination": ACCOUNT})

    def cancel(self) -> None:
        kind = self.random.choice(["payments", "payouts"])
        self.client.post(f"/{kind}/{self.one_of(getattr(self.engine, kind))}/cancel")

    def money(self) -> None:
        if self.random.random() < 0.5:
            self.engine.fund("CLP", self.random.randint(1, 3_000))
        else:
            self.engine.set_reserve("CLP", self.random.randint(0, self.engine.balances["CLP"]["available"]))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_the_audit_finds_no_error_after_random_actions(seed: int) -> None:
    actions = RandomActions(seed)
    for _ in range(60):
        actions.step()
        assert actions.engine.audit() == []
    for balance in actions.engine.balances.values():
        assert min(balance[name] for name in ("available", "pending", "reserve", "hold", "debt")) >= 0


def tampered(change: str) -> Engine:
    clock = Clock()
    clock.freeze()
    engine = Engine(clock=clock, rate_limits=False)
    client = Client(engine)
    engine.fund("CLP", 50_000)
    card, bank = client.card(), client.bank()
    engine.pay(card["id"])
    engine.pay(bank["id"])
    card_refund = client.make("/refunds", {"payment_id": card["id"], "amount": 100})
    bank_refund = client.make("/refunds", {"payment_id": bank["id"], "amount": 100, "destination": ACCOUNT})
    engine.hold(client.card()["id"])
    assert engine.audit() == []
    state = engine.default_project.state
    live = {
        "card": state.payments.items.find(card["id"]),
        "refund": state.refunds.items.find(card_refund["id"]),
        "payout": state.payouts.items.find(bank_refund["payout_id"]),
        "balance": state.ledger.balances["CLP"],
    }
    name, _, field = change.partition(".")
    if name == "entry":
        state.ledger.entries.append(Entry("now", "CLP", "magic", "x", available=5, hold=-5))
    elif name == "refund_total":
        state.payments.internals[card["id"]].refund_total += 20_000
    elif field == "status":
        live[name][field] = "succeeded"
    else:
        live[name][field] += 1
    return engine


@pytest.mark.parametrize(
    "change",
    [
        "entry", "refund_total", "card.fee", "card.net_amount", "card.amount_received", "card.refunded_amount",
        "refund.amount", "refund.status", "payout.amount", "payout.status", "balance.available", "balance.pending",
        "balance.hold", "balance.debt", "balance.reserve",
    ],
)  # fmt: skip
def test_the_audit_finds_every_wrong_field(change: str) -> None:
    assert tampered(change).audit() != []
