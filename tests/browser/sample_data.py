"""A month of a shop's data, so that every page has something to show."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from payments_integration import reconciliation, services
from payments_integration.contrib.finance.models import BalanceChange
from payments_integration.contrib.finance.movements import backfill
from payments_integration.models import (
    Balance,
    EventState,
    Operation,
    OperationState,
    Payment,
    Payout,
    Refund,
)
from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data
from tests.factories import rows

DAYS = 30
_METHODS = (
    ("cl_webpay_card", "card", "CL", "CLP", 15_990, 0.93),
    ("cl_bank_transfer", "bank_transfer", "CL", "CLP", 48_500, 0.82),
    ("cl_servipag", "cash", "CL", "CLP", 8_900, 0.61),
    ("br_pix", "bank_transfer", "BR", "BRL", 12_990, 0.96),
    ("br_card", "card", "BR", "BRL", 24_900, 0.88),
    ("ec_card", "card", "EC", "USD", 3_950, 0.9),
)
_TRACEBACK = """Traceback (most recent call last):
  File "shop/receivers.py", line 41, in ship
    label = order.shipping["address"]
KeyError: 'address'
"""
_PAYERS = (
    {"name": "María Fernanda González"},
    {"name": "Ana Soto", "email": "ana@shop.example"},
    {"email": "joao.silva@shop.example"},
    None,
)
_UNPAID = ("failed", "expired", "canceled", "requires_action")


def month(provider: ProviderSandbox) -> dict[str, Any]:
    """Rows of thirty days, and some made through the provider. Returns the rows with interesting pages."""
    chance = random.Random(7)
    now = timezone.now().replace(microsecond=0)
    _payments(chance, now)
    _money_out(chance, now)
    featured = _featured(provider)
    _balance(chance, now)
    for model in (Payment, Payout, Refund):
        # The provider does not know the rows that are made up here, and a pass may have noticed that.
        model.objects.update(gone_at=None)
    # The cash book has them.
    backfill()
    return featured


def _payments(chance: random.Random, now: datetime) -> None:
    found = []
    for number in range(600):
        code, family, country, currency, usual, success = chance.choice(_METHODS)
        at = now - timedelta(minutes=chance.randrange(DAYS * 24 * 60))
        amount = usual * chance.randrange(1, 5)
        good = chance.random() < success
        status = "succeeded" if good else chance.choice(_UNPAID)
        found.append(
            Payment(
                **rows.mirror(
                    id=f"pay_{number:04d}{chance.randrange(16**12):012x}", status=status, amount=amount,
                    amount_received=amount if good else 0, currency=currency, country=country, method_code=code,
                    method_family=family, merchant_reference=f"ORD-{21000 + number}", created_at=at,
                    succeeded_at=at + timedelta(minutes=3) if good else None, state_at=at,
                    refunded_amount=amount // 2 if good and chance.random() < 0.06 else 0,
                    payer=_PAYERS[number % len(_PAYERS)],
                    failure_reason="insufficient funds" if status == "failed" else None,
                )
            )
        )  # fmt: skip
    Payment.objects.bulk_create(found)


def _money_out(chance: random.Random, now: datetime) -> None:
    payouts, refunds = [], []
    paid = list(Payment.objects.filter(refunded_amount__gt=0))
    for number in range(24):
        at = now - timedelta(hours=chance.randrange(DAYS * 24))
        status = chance.choice(("succeeded", "succeeded", "succeeded", "processing", "failed", "returned"))
        payouts.append(
            Payout(
                **rows.mirror(
                    id=f"pout_{number:04d}{chance.randrange(16**12):012x}", status=status, fee=300, currency="CLP",
                    amount=chance.randrange(20, 900) * 1000, country="CL", method_code="cl_bank_transfer",
                    merchant_reference=f"SUP-{700 + number}", destination=provider_data.DESTINATION, created_at=at,
                    state_at=at, failure_reason="account closed" if status in ("failed", "returned") else None,
                )
            )
        )  # fmt: skip
    for payment in paid:
        refunds.append(
            Refund(
                **rows.mirror(
                    id=payment.pk.replace("pay_", "ref_"), status="succeeded", amount=payment.refunded_amount,
                    currency=payment.currency, payment_id=payment.pk, reason="returned goods",
                    created_at=payment.created_at + timedelta(hours=20), state_at=payment.created_at,
                )
            )
        )  # fmt: skip
    Payout.objects.bulk_create(payouts)
    for payout in payouts:
        rows.change(payout, status=payout.status, at=payout.created_at)
    disputed = Payment.objects.filter(status="succeeded").order_by("created_at")[0]
    Payment.objects.filter(pk=disputed.pk).update(status="chargeback", synced_at=now)
    rows.change(disputed, previous_status="succeeded", status="chargeback", at=now - timedelta(days=2))
    Refund.objects.bulk_create(refunds)


def _featured(provider: ProviderSandbox) -> dict[str, Any]:
    """Objects made through the provider and our inbox, with their whole history."""
    payer = {"name": "Ana Soto", "email": "ana@shop.example", "document": provider_data.HOLDER["document"]}
    bank = provider_data.paid(provider, provider_data.TRANSFER, 48_500, merchant_reference="ORD-21977", payer=payer)
    card = provider_data.paid(provider, provider_data.CARD, 15_990, merchant_reference="ORD-21978", payer=payer)
    voucher = services.create_payment(
        amount=8_900, currency="CLP", country="CL", method_code="cl_servipag", merchant_reference="ORD-21979",
        payer=payer,
    )  # fmt: skip
    provider.engine.open_checkout(voucher.pk)
    provider_data.funded(provider, 3_000_000)
    services.create_refund(card, amount=5_000, reason="one of two came broken", actor="support")
    deposit = services.create_deposit_reference(
        country="CL", currency="CLP", method_code="cl_deposit", merchant_reference="CUST-88", payer=payer
    )
    provider.engine.transfer(deposit.pk, 120_000)
    services.sync_webhook_endpoints()
    provider.settle()
    reconciliation.reconcile_events("default")
    reconciliation.reconcile_objects("default")
    waiting = services.defer(
        services.create_payout, amount=1_450_000, currency="CLP", country="CL", method_code=provider_data.TRANSFER,
        destination=provider_data.DESTINATION, merchant_reference="SUP-741", actor="carla",
    )  # fmt: skip
    undecided = rows.operation(
        operation="create_refund", state=OperationState.NEEDS_PERSON, target_id=card.pk, amount=2_500, currency="CLP",
        may_have_run=True, actor="support", created_at=timezone.now() - timedelta(hours=5),
        note="no refund of this amount is listed, and the key is no longer kept",
    )  # fmt: skip
    rows.operation(
        operation="create_payout", state=OperationState.REJECTED, amount=310_000, currency="CLP", deferred=True,
        arguments={"destination": provider_data.DESTINATION}, merchant_reference="SUP-738", actor="payroll",
        created_at=timezone.now() - timedelta(hours=3), closed_at=timezone.now() - timedelta(hours=3),
        error={"code": "insufficient_balance", "type": "invalid_request"},
    )  # fmt: skip
    parked = rows.event(
        bank, id="evt_parked01", state=EventState.PARKED, attempts=6, created_at=timezone.now() - timedelta(hours=2),
        received_at=timezone.now() - timedelta(hours=2),
        error=_TRACEBACK,
    )  # fmt: skip
    for payment in (bank, card, voucher):
        payment.refresh_from_db()
    assert isinstance(waiting, Operation)
    return {
        "bank": bank, "card": card, "voucher": voucher, "deposit": deposit, "waiting": waiting,
        "undecided": undecided, "parked": parked,
    }  # fmt: skip


def _balance(chance: random.Random, now: datetime) -> None:
    balance = Balance.objects.get(currency="CLP")
    available = 2_400_000
    changes = []
    for number in range(60):
        available = max(100_000, available + chance.randrange(-300_000, 360_000))
        changes.append(
            BalanceChange(
                account=balance.account, currency=balance.currency, at=now - timedelta(hours=12 * (60 - number)),
                available=available,
                pending=chance.randrange(100_000, 700_000), reserve=150_000, hold=chance.randrange(0, 200_000),
                debt=0,
            )
        )  # fmt: skip
    BalanceChange.objects.bulk_create(changes)
