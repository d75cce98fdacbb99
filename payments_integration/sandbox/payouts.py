"""Money out: payouts of the merchant, and those that carry a refund ("Payout", "Payouts")."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final

from .catalog import payout_fee
from .collection import Collection
from .desk import Desk
from .errors import ApiError, SandboxError
from .shapes import Wire, new_id
from .validation import Fields

CREATE_FIELDS: Final = (
    "amount", "currency", "country", "method_code", "merchant_reference", "destination", "metadata",
)  # fmt: skip
OPEN: Final = ("created", "processing", "on_hold")  # amount plus fee stand in hold


class Payouts:
    """The payouts of one project. Whoever sets ``on_change`` is told after each change of status."""

    def __init__(self, desk: Desk) -> None:
        self.items = Collection()
        self.on_change: Callable[[Wire], None] | None = None
        self.moving_since: dict[str, str] = {}  # since when created or processing
        self._desk = desk

    # what the API does

    def create(self, body: Wire) -> Wire:
        """POST /payouts. Required: amount, currency, country, method_code, destination.

        Reserves amount plus fee; 422 insufficient_balance when that is not available.
        """
        fields = Fields(body, CREATE_FIELDS)
        fields.require("amount", "currency", "country", "method_code", "destination")
        amount = fields.amount() or 0
        currency, country = fields.currency(), fields.country()
        code = fields.text("method_code") or ""
        reference = fields.text("merchant_reference", max_length=255)
        destination = fields.destination() or {}
        metadata = fields.metadata()
        method = self._desk.method(code, "payout", country, currency)
        self._desk.check_amount(amount, method)
        self._desk.check_destination(destination)
        self._desk.check_funds(currency, amount + payout_fee(currency))
        return self.start(
            amount, currency, country, code, destination, merchant_reference=reference, metadata=metadata
        )

    def start(
        self,
        amount: int,
        currency: str,
        country: str,
        code: str,
        destination: Wire,
        *,
        merchant_reference: str | None = None,
        metadata: Wire | None = None,
        refund_id: str | None = None,
    ) -> Wire:
        """Create a payout whose request is checked already; ``refund_id`` when it carries a refund."""
        payout: Wire = {
            "id": new_id("pout"),
            "object": "payout",
            "status": "created",
            "amount": amount,
            "fee": payout_fee(currency),
            "currency": currency,
            "country": country,
            "method_code": code,
            "destination": copy.deepcopy(destination),
            **({} if merchant_reference is None else {"merchant_reference": merchant_reference}),
            "failure_reason": None,
            "refund_id": refund_id,
            "metadata": metadata or {},
            "created_at": self._desk.stamp(),
            "succeeded_at": None,
        }
        self.items.add(payout)
        self.moving_since[payout["id"]] = payout["created_at"]
        self._desk.ledger.block(currency, amount + payout["fee"], "payout", payout["id"])
        self._desk.emit(payout)
        return payout

    def cancel(self, payout_id: str) -> Wire:
        """POST /payouts/{id}/cancel: only while created, else 422 invalid_state. Releases the money."""
        payout = self.items.fetch(payout_id)
        if payout["status"] != "created":
            raise ApiError("invalid_state", f"A payout that is {payout['status']} cannot be canceled.")
        return self.withdraw(payout_id)

    # what happens at the bank

    def withdraw(self, payout_id: str) -> Wire:
        """created becomes canceled, by whoever may; what was reserved is available again."""
        payout = self._in(payout_id, ("created",), "be canceled")
        self._move(payout, "canceled")
        self._release(payout, "payout_canceled")
        return payout

    def process(self, payout_id: str) -> Wire:
        """created or on_hold becomes processing."""
        payout = self._in(payout_id, ("created", "on_hold"), "be processed")
        self._move(payout, "processing")
        return payout

    def succeed(self, payout_id: str) -> Wire:
        """The money arrived, by way of processing; what was reserved is spent."""
        payout = self._in(payout_id, OPEN, "succeed")
        if payout["status"] != "processing":
            self._move(payout, "processing")
        self._move(payout, "succeeded", succeeded_at=self._desk.stamp())
        self._desk.ledger.spend_hold(
            payout["currency"], payout["amount"] + payout["fee"], "payout_succeeded", payout_id
        )
        return payout

    def fail(self, payout_id: str, reason: str = "rejected_by_bank") -> Wire:
        """The bank refuses; what was reserved is available again."""
        payout = self._in(payout_id, OPEN, "fail")
        self._move(payout, "failed", failure_reason=reason)
        self._release(payout, "payout_failed")
        return payout

    def return_(self, payout_id: str, reason: str = "returned_by_bank") -> Wire:
        """After success the bank sends the amount back; the fee stays spent."""
        payout = self._in(payout_id, ("succeeded",), "be returned")
        self._move(payout, "returned", failure_reason=reason)
        self._desk.ledger.credit(payout["currency"], payout["amount"], "payout_returned", payout_id)
        return payout

    def hold(self, payout_id: str) -> Wire:
        """created or processing is put on hold for a review."""
        payout = self._in(payout_id, ("created", "processing"), "be put on hold")
        self._move(payout, "on_hold")
        return payout

    def delay(self, payout_id: str) -> Wire:
        """Tell that it takes longer: an event, and no change of status."""
        payout = self._in(payout_id, OPEN, "be delayed")
        self._desk.events.emit("payout.delayed", payout)
        return payout

    # inside

    def _in(self, payout_id: str, statuses: tuple[str, ...], verb: str) -> Wire:
        payout = self.items.at_hand(payout_id)
        if payout["status"] not in statuses:
            raise SandboxError(f"a payout that is {payout['status']} cannot {verb}")
        return payout

    def _move(self, payout: Wire, status: str, **changes: object) -> None:
        payout.update(status=status, **changes)
        if status == "processing":
            self.moving_since[payout["id"]] = self._desk.stamp()
        else:
            self.moving_since.pop(payout["id"], None)
        self._desk.emit(payout)
        if payout["refund_id"] is not None and self.on_change is not None:
            self.on_change(payout)

    def _release(self, payout: Wire, reason: str) -> None:
        amount = payout["amount"] + payout["fee"]
        self._desk.ledger.credit(payout["currency"], amount, reason, payout["id"], from_hold=amount)
