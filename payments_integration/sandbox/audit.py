"""Do the books add up? Every invariant of a project's money, checked from the objects up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from .catalog import payment_fee, payout_fee
from .events import EventStore
from .ledger import BUCKETS, Ledger
from .payments import Payments
from .payouts import OPEN as OPEN_PAYOUTS
from .payouts import Payouts
from .refunds import OPEN as OPEN_REFUNDS
from .refunds import Refunds
from .shapes import Wire

# Entries that bring money into the sandbox or take it out, and nothing else does.
FUNDING = "funding"
CLAIMING = ("created", "processing", "succeeded")


def audit(ledger: Ledger, payments: Payments, payouts: Payouts, refunds: Refunds, events: EventStore) -> list[str]:
    """The violated invariants, in words; empty when the books add up."""
    return [
        *_balances(ledger),
        *_payments(payments),
        *_refunds(payments, payouts, refunds),
        *_holds(ledger, payments, payouts, refunds),
        *_worth(ledger, payments, payouts, refunds),
        *_events(payments, payouts, refunds, ledger, events),
    ]


def _balances(ledger: Ledger) -> Iterator[str]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in ledger.entries:
        for bucket in BUCKETS:
            sums[entry.currency][bucket] += getattr(entry, bucket)
    for currency, balance in ledger.balances.items():
        for bucket in BUCKETS:
            if balance[bucket] != sums[currency][bucket]:
                yield f"{currency} {bucket} is {balance[bucket]}, its entries say {sums[currency][bucket]}"
            if balance[bucket] < 0:
                yield f"{currency} {bucket} is below zero: {balance[bucket]}"
        if balance["debt"] > 0 and balance["available"] > 0:
            yield f"{currency} has debt and available money at once"


def _payments(payments: Payments) -> Iterator[str]:
    for payment in payments.items:
        received, name = payment["amount_received"], payment["id"]
        if payment["fee"] != payment_fee(payment["method_family"], received):
            yield f"{name}: fee {payment['fee']} is not that of {received}"
        if payment["net_amount"] != received - payment["fee"]:
            yield f"{name}: net_amount is not the received amount less the fee"
        expected = {
            "succeeded": received == payment["amount"],
            "chargeback": received == payment["amount"],
            "on_hold": received == payment["amount"],
            "overpaid": received > payment["amount"],
            "partially_paid": 0 < received < payment["amount"],
        }.get(payment["status"], received == 0)
        if not expected:
            yield f"{name}: {payment['status']} with {received} of {payment['amount']} received"
        if payments.refundable(payment) < 0:
            yield f"{name}: more is refunded or charged back than was received"


def _refunds(payments: Payments, payouts: Payouts, refunds: Refunds) -> Iterator[str]:
    claimed: Counter[str] = Counter()
    succeeded: Counter[str] = Counter()
    for refund in refunds.items:
        claimed[refund["payment_id"]] += refund["amount"] if refund["status"] in CLAIMING else 0
        succeeded[refund["payment_id"]] += refund["amount"] if refund["status"] == "succeeded" else 0
        card = payments.items.at_hand(refund["payment_id"])["method_family"] == "card"
        if card != (refund["payout_id"] is None):
            yield f"{refund['id']}: only refunds of cards run without a payout"
        if refund["payout_id"] is not None:
            payout = payouts.items.at_hand(refund["payout_id"])
            same = (payout["refund_id"], payout["amount"], payout["currency"]) == (
                refund["id"], refund["amount"], refund["currency"],
            )  # fmt: skip
            if not same:
                yield f"{refund['id']}: its payout {payout['id']} is not of the same money"
            if payout["status"] != refund["status"] and payout["status"] != "on_hold":
                yield f"{refund['id']}: {refund['status']}, its payout is {payout['status']}"
    for payment in payments.items:
        if payments.asides[payment["id"]].claimed != claimed[payment["id"]]:
            yield f"{payment['id']}: the refunds that claim its money do not add up"
        if payment["refunded_amount"] != succeeded[payment["id"]]:
            yield f"{payment['id']}: refunded_amount is not the sum of its succeeded refunds"


def _holds(ledger: Ledger, payments: Payments, payouts: Payouts, refunds: Refunds) -> Iterator[str]:
    hold: Counter[str] = Counter()
    pending: Counter[str] = Counter()
    for payout in payouts.items:
        if payout["status"] in OPEN_PAYOUTS:
            hold[payout["currency"]] += payout["amount"] + payout["fee"]
    for refund in refunds.items:
        if refund["payout_id"] is None and refund["status"] in OPEN_REFUNDS:
            hold[refund["currency"]] += refund["amount"]
    for payment in payments.items:
        pending[payment["currency"]] += payment["net_amount"] if payment["status"] == "on_hold" else 0
    for currency, balance in ledger.balances.items():
        if balance["hold"] != hold[currency]:
            yield f"{currency} hold is {balance['hold']}, open payouts and refunds add up to {hold[currency]}"
        if balance["pending"] != pending[currency]:
            yield f"{currency} pending is {balance['pending']}, payments on hold say {pending[currency]}"


def _worth(ledger: Ledger, payments: Payments, payouts: Payouts, refunds: Refunds) -> Iterator[str]:
    """What the merchant owns less what it owes is what came in less what went out, per currency."""
    worth: Counter[str] = Counter()
    for entry in ledger.entries:
        worth[entry.currency] += entry.available if entry.reason == FUNDING else 0
        worth[entry.currency] -= entry.debt if entry.reason == FUNDING else 0
    for payment in payments.items:
        worth[payment["currency"]] += payment["net_amount"] - payments.asides[payment["id"]].charged_back
    for payout in payouts.items:
        if payout["status"] == "succeeded":
            worth[payout["currency"]] -= payout["amount"]
        if payout["status"] in ("succeeded", "returned"):
            worth[payout["currency"]] -= payout_fee(payout["currency"])
    for refund in refunds.items:
        if refund["payout_id"] is None and refund["status"] == "succeeded":
            worth[refund["currency"]] -= refund["amount"]
    for currency, balance in ledger.balances.items():
        owned = sum(balance[bucket] for bucket in BUCKETS if bucket != "debt") - balance["debt"]
        if owned != worth[currency]:
            yield f"{currency}: the balance is worth {owned}, the objects say {worth[currency]}"


def _events(
    payments: Payments, payouts: Payouts, refunds: Refunds, ledger: Ledger, events: EventStore
) -> Iterator[str]:
    """The last event of each object shows it as it is, but for what changes without an event."""
    last: dict[str, Wire] = {}
    for event in events.items:
        last[event["data"].get("id", event["data"]["currency"])] = event["data"]
    for item in (*payments.items, *payouts.items, *refunds.items):
        told = last.get(item["id"])
        if told is None:
            continue  # forgotten after 30 days
        silent = {"refunded_amount"} if item["object"] == "payment" else set()
        if item["object"] == "refund" and item["status"] == "canceled":
            silent = {"status"}
        if any(told.get(name) != value for name, value in item.items() if name not in silent):
            yield f"{item['id']}: its last event does not show it as it is"
    for currency, balance in ledger.balances.items():
        if currency in last and last[currency] != balance:
            yield f"{currency}: the last balance.updated does not show the balance"
