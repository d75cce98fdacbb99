"""A month of business with the sandbox, for the tests of the journal."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import time_machine

from payments_integration import reconciliation, services
from payments_integration.contrib.finance.journal import Period
from payments_integration.testing import ProviderSandbox
from tests.integration.reconciling import pass_time, pay

MONTH = Period(date(2026, 3, 1), date(2026, 4, 1))
BEFORE, WITHIN, AFTER = (datetime.fromisoformat(f"2026-{day}T12:00:00+00:00") for day in ("02-20", "03-10", "04-10"))
DESTINATION = {
    "type": "bank_account", "account_number": "000123", "holder_name": "Ana",
    "holder_document": {"type": "RUT", "number": "12345678-5"},
}  # fmt: skip


def trade(sandbox: ProviderSandbox, clock: time_machine.Traveller) -> None:
    """Everything that moves money, in March; the balances are known from February."""
    clock.move_to(BEFORE)
    services.sync_balances()
    clock.move_to(WITHIN)
    _pay_ins(sandbox)
    _pay_outs(sandbox)
    pass_time(sandbox, seconds=30)
    sandbox.settle()
    services.sync_balances()
    clock.move_to(AFTER)


def read_everything(sandbox: ProviderSandbox) -> None:
    """The same without a single delivery: what reconciliation finds."""
    sandbox.engine.faults.clear()
    reconciliation.reconcile_events(sandbox.account)
    reconciliation.process_due(sandbox.account)


def _pay_ins(sandbox: ProviderSandbox) -> None:
    engine = sandbox.engine
    pay(sandbox)
    pay(sandbox, amount=12345, currency="BRL", country="BR", method_code="br_pix")
    charged_back = pay(sandbox, amount=7000)
    services.refresh(charged_back)
    by_card = services.create_refund(charged_back, amount=2000)
    engine.succeed_refund(by_card.pk)
    engine.chargeback(charged_back.pk)
    held: Any = services.create_payment(amount=5000, currency="CLP", country="CL", method_code="cl_webpay_card")
    engine.hold(held.pk)
    failed: Any = services.create_payment(amount=6000, currency="CLP", country="CL", method_code="cl_webpay_card")
    engine.hold(failed.pk)
    engine.fail(failed.pk)


def _pay_outs(sandbox: ProviderSandbox) -> None:
    engine = sandbox.engine

    def payout(amount: int) -> str:
        made = services.create_payout(
            amount=amount, currency="CLP", country="CL", method_code="cl_bank_transfer", destination=DESTINATION
        )
        return str(made.pk)

    engine.succeed_payout(payout(3000))
    returned = payout(4000)
    engine.succeed_payout(returned)
    engine.return_payout(returned)
    engine.fail_payout(payout(1000))
    payout(500)
    transfer = pay(sandbox, amount=9000, method_code="cl_bank_transfer")
    services.refresh(transfer)
    for amount, is_returned in ((1500, False), (2500, True)):
        refund = services.create_refund(transfer, amount=amount, destination=DESTINATION)
        engine.succeed_refund(refund.pk)
        if is_returned:
            engine.return_refund(refund.pk)
