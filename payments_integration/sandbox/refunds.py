"""Refunds: of cards through the provider, of every other family as a payout to the payer ("Refund",
"Refunds").
"""

from __future__ import annotations

from typing import Final

from .catalog import payout_fee, payout_method
from .collection import Collection
from .desk import Desk
from .errors import ApiError, SandboxError
from .payments import REFUNDABLE, Payments
from .payouts import Payouts
from .shapes import Wire, new_id
from .validation import Fields

CREATE_FIELDS: Final = ("payment_id", "amount", "destination", "reason")
OPEN: Final = ("created", "processing")
# What a refund's payout becomes, and the refund with it. A payout on hold leaves its refund as it is.
FOLLOWS: Final = ("processing", "succeeded", "failed", "canceled", "returned")


class Refunds:
    """The refunds of one project; keeps ``refunded_amount`` of their payments."""

    def __init__(self, desk: Desk, payments: Payments, payouts: Payouts) -> None:
        self.items = Collection()
        self.moving_since: dict[str, str] = {}  # since when created or processing
        self._desk = desk
        self._payments = payments
        self._payouts = payouts
        payouts.on_change = self._follow

    # what the API does

    def create(self, body: Wire) -> Wire:
        """POST /refunds. Required: payment_id, and destination unless a card was charged.

        Without an amount: everything not refunded yet. The money, with a payout's fee where one carries it,
        is reserved.
        """
        fields = Fields(body, CREATE_FIELDS)
        fields.require("payment_id")
        payment_id = fields.text("payment_id") or ""
        amount = fields.amount()
        destination = fields.destination()
        reason = fields.text("reason")
        payment = self._payments.items.get(payment_id)
        if payment is None:
            raise ApiError("resource_not_found", f"There is no payment {payment_id!r}.", param="payment_id")
        if payment["status"] not in REFUNDABLE:
            raise ApiError(
                "invalid_state",
                f"A payment that is {payment['status']} cannot be refunded.",
                param="payment_id",
            )
        by_card = payment["method_family"] == "card"
        if destination is None and not by_card:
            raise ApiError("parameter_missing", "Only card payments are refunded without one.", param="destination")
        rest = self._payments.refundable(payment)
        if rest == 0:
            raise ApiError("invalid_state", "Nothing is left to refund.", param="payment_id")
        amount = rest if amount is None else amount
        if amount > rest:
            raise ApiError("amount_out_of_range", f"At most {rest} minor units can be refunded.", param="amount")
        if by_card or destination is None:  # without one it is a card, or was refused above
            self._desk.check_funds(payment["currency"], amount)
            return self._by_card(payment, amount, reason)
        self._desk.check_destination(destination)
        self._desk.check_funds(payment["currency"], amount + payout_fee(payment["currency"]))
        return self._by_payout(payment, amount, reason, destination)

    # what happens at the provider or the bank

    def process(self, refund_id: str) -> Wire:
        """created becomes processing."""
        refund = self._in(refund_id, ("created",), "be processed")
        if refund["payout_id"] is not None:
            self._payouts.process(refund["payout_id"])
        else:
            self._move(refund, "processing")
        return refund

    def succeed(self, refund_id: str) -> Wire:
        """The payer has the money, by way of processing."""
        refund = self._in(refund_id, OPEN, "succeed")
        if refund["payout_id"] is not None:
            self._payouts.succeed(refund["payout_id"])
            return refund
        if refund["status"] == "created":
            self._move(refund, "processing")
        self._move(refund, "succeeded")
        self._desk.ledger.spend_hold(refund["currency"], refund["amount"], "refund_succeeded", refund_id)
        return refund

    def fail(self, refund_id: str) -> Wire:
        """It did not work; the money is available again."""
        refund = self._in(refund_id, OPEN, "fail")
        if refund["payout_id"] is not None:
            self._payouts.fail(refund["payout_id"])
        else:
            self._move(refund, "failed")
            self._release(refund, "refund_failed")
        return refund

    def cancel(self, refund_id: str) -> Wire:
        """The provider gives it up while created. No event tells of it; the money is available again."""
        refund = self._in(refund_id, ("created",), "be canceled")
        if refund["payout_id"] is not None:
            self._payouts.withdraw(refund["payout_id"])
        else:
            self._move(refund, "canceled")
            self._release(refund, "refund_canceled")
        return refund

    def return_(self, refund_id: str) -> Wire:
        """After success the money came back, and can be refunded again."""
        refund = self._in(refund_id, ("succeeded",), "be returned")
        if refund["payout_id"] is not None:
            self._payouts.return_(refund["payout_id"])
        else:
            self._move(refund, "returned")
            self._desk.ledger.credit(refund["currency"], refund["amount"], "refund_returned", refund_id)
        return refund

    # inside

    def _by_card(self, payment: Wire, amount: int, reason: str | None) -> Wire:
        refund = self._record(new_id("ref"), payment, amount, reason)
        self._desk.ledger.block(refund["currency"], amount, "refund", refund["id"])
        self._desk.emit(refund)
        return refund

    def _by_payout(self, payment: Wire, amount: int, reason: str | None, destination: Wire) -> Wire:
        method = payout_method(payment["country"], payment["currency"])
        if method is None:
            raise ApiError("method_not_available", "No payout method reaches the payer's country.", param="payment_id")
        refund = self._record(new_id("ref"), payment, amount, reason)
        payout = self._payouts.start(
            amount, payment["currency"], payment["country"], method.code, destination, refund_id=refund["id"]
        )
        refund["payout_id"] = payout["id"]
        self._desk.emit(refund)
        return refund

    def _record(self, refund_id: str, payment: Wire, amount: int, reason: str | None) -> Wire:
        refund: Wire = {
            "id": refund_id,
            "object": "refund",
            "status": "created",
            "payment_id": payment["id"],
            "payout_id": None,
            "amount": amount,
            "currency": payment["currency"],
            "reason": reason,
            "created_at": self._desk.stamp(),
        }
        self.items.add(refund)
        self.moving_since[refund_id] = refund["created_at"]
        self._payments.claim(payment, amount)
        return refund

    def _in(self, refund_id: str, statuses: tuple[str, ...], verb: str) -> Wire:
        refund = self.items.at_hand(refund_id)
        if refund["status"] not in statuses:
            raise SandboxError(f"a refund that is {refund['status']} cannot {verb}")
        return refund

    def _follow(self, payout: Wire) -> None:
        refund = self.items.at_hand(payout["refund_id"])
        if payout["status"] in FOLLOWS and refund["status"] != payout["status"]:
            self._move(refund, payout["status"])

    def _move(self, refund: Wire, status: str) -> None:
        payment = self._payments.items.at_hand(refund["payment_id"])
        refund["status"] = status
        if status == "processing":
            self.moving_since[refund["id"]] = self._desk.stamp()
        else:
            self.moving_since.pop(refund["id"], None)
        if status == "succeeded":
            self._payments.count_refunded(payment, refund["amount"])
        elif status == "returned":
            self._payments.count_refunded(payment, -refund["amount"])
        if status in ("failed", "canceled", "returned"):
            self._payments.claim(payment, -refund["amount"])
        if status != "canceled":  # the interface has no event for it
            self._desk.emit(refund)

    def _release(self, refund: Wire, reason: str) -> None:
        self._desk.ledger.credit(
            refund["currency"], refund["amount"], reason, refund["id"], from_hold=refund["amount"]
        )
