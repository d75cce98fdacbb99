"""Refund card payments to the card, and all other payments by a payout to the payer ("Refund", "Refunds")."""

from __future__ import annotations

from typing import Final

from .catalog import payout_fee, payout_method
from .payments import REFUNDABLE, Payments
from .payouts import Payouts
from .protocol import ApiError, Json
from .resources import ProjectContext, Resources, new_id
from .validation import Fields

CREATE_FIELDS: Final = ("payment_id", "amount", "destination", "reason")
OPEN: Final = ("created", "processing")
# A refund copies these statuses from its payout. A payout on hold does not change its refund.
FOLLOWED_STATUSES: Final = ("processing", "succeeded", "failed", "canceled", "returned")


class Refunds(Resources):
    """The refunds of one project. They update ``refunded_amount`` of their payments."""

    def __init__(self, context: ProjectContext, payments: Payments, payouts: Payouts) -> None:
        super().__init__(context)
        self._payments = payments
        self._payouts = payouts
        payouts.on_change = self._follow_payout

    # requests of the API

    def create(self, body: Json) -> Json:
        """POST /refunds. Required: payment_id, and destination unless the payment was made by card.

        Without an amount, refunds the refundable rest. Reserves the amount, and the fee if it runs as a payout.
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
                "invalid_state", f"A payment that is {payment['status']} cannot be refunded.", param="payment_id"
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
        if by_card or destination is None:
            self._context.ledger.check_funds(payment["currency"], amount)
            return self._by_card(payment, amount, reason)
        self._context.terms.check_destination(destination, self._context.clock.now())
        self._context.ledger.check_funds(payment["currency"], amount + payout_fee(payment["currency"]))
        return self._by_payout(payment, amount, reason, destination)

    # actions of the provider and the bank

    def process(self, refund_id: str) -> Json:
        """Process the refund: created becomes processing."""
        refund = self._require(refund_id, ("created",), "be processed")
        if refund["payout_id"] is not None:
            self._payouts.process(refund["payout_id"])
        else:
            self._set_status(refund, "processing")
        return refund

    def succeed(self, refund_id: str) -> Json:
        """Let the payer receive the money, by way of processing."""
        refund = self._require(refund_id, OPEN, "succeed")
        if refund["payout_id"] is not None:
            self._payouts.succeed(refund["payout_id"])
            return refund
        if refund["status"] == "created":
            self._set_status(refund, "processing")
        self._set_status(refund, "succeeded")
        self._context.ledger.spend_hold(refund["currency"], refund["amount"], "refund_succeeded", refund_id)
        return refund

    def fail(self, refund_id: str) -> Json:
        """Fail the refund. The money is available again."""
        refund = self._require(refund_id, OPEN, "fail")
        if refund["payout_id"] is not None:
            self._payouts.fail(refund["payout_id"])
        else:
            self._set_status(refund, "failed")
            self._release(refund, "refund_failed")
        return refund

    def cancel(self, refund_id: str) -> Json:
        """Cancel a created refund as the provider, without an event. The money is available again."""
        refund = self._require(refund_id, ("created",), "be canceled")
        if refund["payout_id"] is not None:
            self._payouts.withdraw(refund["payout_id"])
        else:
            self._set_status(refund, "canceled")
            self._release(refund, "refund_canceled")
        return refund

    def return_(self, refund_id: str) -> Json:
        """Let the refunded money come back, after success. It can be refunded again."""
        refund = self._require(refund_id, ("succeeded",), "be returned")
        if refund["payout_id"] is not None:
            self._payouts.return_(refund["payout_id"])
        else:
            self._set_status(refund, "returned")
            self._context.ledger.credit(refund["currency"], refund["amount"], "refund_returned", refund_id)
        return refund

    def _by_card(self, payment: Json, amount: int, reason: str | None) -> Json:
        refund = self._record(new_id("ref"), payment, amount, reason)
        self._context.ledger.place_hold(refund["currency"], amount, "refund", refund["id"])
        self._context.emit(refund)
        return refund

    def _by_payout(self, payment: Json, amount: int, reason: str | None, destination: Json) -> Json:
        method = payout_method(payment["country"], payment["currency"])
        if method is None:
            raise ApiError("method_not_available", "No payout method reaches the payer's country.", param="payment_id")
        refund = self._record(new_id("ref"), payment, amount, reason)
        payout = self._payouts.start(
            amount, payment["currency"], payment["country"], method.code, destination, refund_id=refund["id"]
        )
        refund["payout_id"] = payout["id"]
        self._context.emit(refund)
        return refund

    def _record(self, refund_id: str, payment: Json, amount: int, reason: str | None) -> Json:
        refund: Json = {
            "id": refund_id,
            "object": "refund",
            "status": "created",
            "payment_id": payment["id"],
            "payout_id": None,
            "amount": amount,
            "currency": payment["currency"],
            "reason": reason,
            "created_at": self._context.stamp(),
        }
        self.items.add(refund)
        self.in_progress_since[refund_id] = refund["created_at"]
        self._payments.add_refund(payment, amount)
        return refund

    def _follow_payout(self, payout: Json) -> None:
        refund = self.items.find(payout["refund_id"])
        if payout["status"] in FOLLOWED_STATUSES and refund["status"] != payout["status"]:
            self._set_status(refund, payout["status"])

    def _set_status(self, refund: Json, status: str) -> None:
        payment = self._payments.items.find(refund["payment_id"])
        self._update(refund, status)
        if status == "succeeded":
            self._payments.count_refunded(payment, refund["amount"])
        elif status == "returned":
            self._payments.count_refunded(payment, -refund["amount"])
        if status in ("failed", "canceled", "returned"):
            self._payments.add_refund(payment, -refund["amount"])
        if status != "canceled":  # there is no event type for it
            self._context.emit(refund)

    def _release(self, refund: Json, reason: str) -> None:
        self._context.ledger.credit(
            refund["currency"], refund["amount"], reason, refund["id"], from_hold=refund["amount"]
        )
