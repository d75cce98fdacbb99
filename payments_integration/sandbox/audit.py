"""Check the accounts: every invariant of a project's money, computed from its objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from .catalog import payment_fee, payout_fee
from .ledger import BUCKETS, Ledger
from .payments import Payments
from .payouts import OPEN as OPEN_PAYOUTS, Payouts
from .protocol import Json
from .refunds import OPEN as OPEN_REFUNDS, Refunds
from .resources import EventStore

FUNDING = "funding"  # the reason of entries for money that no object brought in
COUNTED_STATUSES = ("created", "processing", "succeeded")  # refunds in these statuses reduce the refundable amount


def audit(ledger: Ledger, payments: Payments, payouts: Payouts, refunds: Refunds, events: EventStore) -> list[str]:
    """Return the violated invariants as messages; empty if the money adds up."""
    return [
        *_balances(ledger),
        *_payments(payments),
        *_refunds(payments, payouts, refunds),
        *_holds(ledger, payments, payouts, refunds),
        *_net_balance(ledger, payments, payouts, refunds),
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
                yield f"{currency} {bucket} is {balance[bucket]}, its entries add up to {sums[currency][bucket]}"
            if balance[bucket] < 0:
                yield f"{currency} {bucket} is below zero: {balance[bucket]}"
        if balance["debt"] > 0 and balance["available"] > 0:
            yield f"{currency} has debt and available money at the same time"


def _payments(payments: Payments) -> Iterator[str]:
    for payment in payments.items:
        received, name = payment["amount_received"], payment["id"]
        if payment["fee"] != payment_fee(payment["method_family"], received):
            yield f"{name}: {payment['fee']} is not the fee on {received}"
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
    refund_total: Counter[str] = Counter()
    succeeded: Counter[str] = Counter()
    for refund in refunds.items:
        refund_total[refund["payment_id"]] += refund["amount"] if refund["status"] in COUNTED_STATUSES else 0
        succeeded[refund["payment_id"]] += refund["amount"] if refund["status"] == "succeeded" else 0
        card = payments.items.find(refund["payment_id"])["method_family"] == "card"
        if card != (refund["payout_id"] is None):
            yield f"{refund['id']}: only card refunds run without a payout"
        if refund["payout_id"] is not None:
            payout = payouts.items.find(refund["payout_id"])
            same = (payout["refund_id"], payout["amount"], payout["currency"]) == (
                refund["id"], refund["amount"], refund["currency"],
            )  # fmt: skip
            if not same:
                yield f"{refund['id']}: its payout {payout['id']} has another amount, currency or refund"
            if payout["status"] != refund["status"] and payout["status"] != "on_hold":
                yield f"{refund['id']}: {refund['status']}, its payout is {payout['status']}"
    for payment in payments.items:
        if payments.internals[payment["id"]].refund_total != refund_total[payment["id"]]:
            yield f"{payment['id']}: its refunds do not add up"
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
            yield f"{currency} pending is {balance['pending']}, payments on hold add up to {pending[currency]}"


def _net_balance(ledger: Ledger, payments: Payments, payouts: Payouts, refunds: Refunds) -> Iterator[str]:
    """Check in each currency that the balance less debt equals the incoming less the outgoing money."""
    net: Counter[str] = Counter()
    for entry in ledger.entries:
        net[entry.currency] += entry.available if entry.reason == FUNDING else 0
        net[entry.currency] -= entry.debt if entry.reason == FUNDING else 0
    for payment in payments.items:
        net[payment["currency"]] += payment["net_amount"] - payments.internals[payment["id"]].charged_back
    for payout in payouts.items:
        if payout["status"] == "succeeded":
            net[payout["currency"]] -= payout["amount"]
        if payout["status"] in ("succeeded", "returned"):
            net[payout["currency"]] -= payout_fee(payout["currency"])
    for refund in refunds.items:
        if refund["payout_id"] is None and refund["status"] == "succeeded":
            net[refund["currency"]] -= refund["amount"]
    for currency, balance in ledger.balances.items():
        actual = sum(balance[bucket] for bucket in BUCKETS if bucket != "debt") - balance["debt"]
        if actual != net[currency]:
            yield f"{currency}: the net balance is {actual}, the objects add up to {net[currency]}"


def _events(
    payments: Payments, payouts: Payouts, refunds: Refunds, ledger: Ledger, events: EventStore
) -> Iterator[str]:
    """Check that the last event of each object shows its current fields. Some fields change without an event."""
    last: dict[str, Json] = {}
    for event in events.items:
        last[event["data"].get("id", event["data"]["currency"])] = event["data"]
    for item in (*payments.items, *payouts.items, *refunds.items):
        shown = last.get(item["id"])
        if shown is None:
            continue  # its events were deleted after 30 days
        silent = {"refunded_amount"} if item["object"] == "payment" else set()
        if item["object"] == "refund" and item["status"] == "canceled":
            silent = {"status"}
        if any(shown.get(name) != value for name, value in item.items() if name not in silent):
            yield f"{item['id']}: its last event does not show its current fields"
    for currency, balance in ledger.balances.items():
        if currency in last and last[currency] != balance:
            yield f"{currency}: the last balance.updated does not show the balance"
