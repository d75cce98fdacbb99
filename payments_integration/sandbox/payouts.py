"""Make payouts for the merchant, and payouts that execute a refund ("Payout", "Payouts")."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final

from .catalog import payout_fee
from .protocol import Json
from .resources import ProjectContext, Resources, new_id
from .validation import Fields

CREATE_FIELDS: Final = (
    "amount", "currency", "country", "method_code", "merchant_reference", "destination", "metadata",
)  # fmt: skip
OPEN: Final = ("created", "processing", "on_hold")  # amount plus fee are in the balance's ``hold``


class Payouts(Resources):
    """The payouts of one project. ``on_change`` is called after each change of status of a refund's payout."""

    def __init__(self, context: ProjectContext) -> None:
        super().__init__(context)
        self.on_change: Callable[[Json], None] | None = None

    # requests of the API

    def create(self, body: Json) -> Json:
        """POST /payouts. Required: amount, currency, country, method_code, destination.

        Reserves amount plus fee. Raises insufficient_balance if less is available.
        """
        fields = Fields(body, CREATE_FIELDS)
        fields.require("amount", "currency", "country", "method_code", "destination")
        amount = fields.amount() or 0
        currency, country = fields.currency(), fields.country()
        code = fields.text("method_code") or ""
        reference = fields.text("merchant_reference", max_length=255)
        destination = fields.destination() or {}
        metadata = fields.metadata()
        self._context.terms.method(code, "payout", country, currency).check_amount(amount)
        self._context.terms.check_destination(destination, self._context.clock.now())
        self._context.ledger.check_funds(currency, amount + payout_fee(currency))
        return self.start(
            amount, currency, country, code, destination, merchant_reference=reference, metadata=metadata
        )

    def start(
        self,
        amount: int,
        currency: str,
        country: str,
        code: str,
        destination: Json,
        *,
        merchant_reference: str | None = None,
        metadata: Json | None = None,
        refund_id: str | None = None,
    ) -> Json:
        """Create a payout from checked values. ``refund_id`` names the refund that it executes."""
        payout: Json = {
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
            "created_at": self._context.stamp(),
            "succeeded_at": None,
        }
        self.items.add(payout)
        self.in_progress_since[payout["id"]] = payout["created_at"]
        self._context.ledger.place_hold(currency, amount + payout["fee"], "payout", payout["id"])
        self._context.emit(payout)
        return payout

    def cancel(self, payout_id: str) -> Json:
        """POST /payouts/{id}/cancel. Releases the money. Raises invalid_state (422) unless created."""
        self._require_cancelable(payout_id, ("created",))
        return self.withdraw(payout_id)

    # actions of the provider and the bank

    def withdraw(self, payout_id: str) -> Json:
        """Cancel the payout: created becomes canceled. The reserved money is available again."""
        payout = self._require(payout_id, ("created",), "be canceled")
        self._set_status(payout, "canceled")
        self._release(payout, "payout_canceled")
        return payout

    def process(self, payout_id: str) -> Json:
        """Process the payout: created or on_hold becomes processing."""
        payout = self._require(payout_id, ("created", "on_hold"), "be processed")
        self._set_status(payout, "processing")
        return payout

    def succeed(self, payout_id: str) -> Json:
        """Let the money arrive, by way of processing. The reserved money is spent."""
        payout = self._require(payout_id, OPEN, "succeed")
        if payout["status"] != "processing":
            self._set_status(payout, "processing")
        self._set_status(payout, "succeeded", succeeded_at=self._context.stamp())
        self._context.ledger.spend_hold(
            payout["currency"], payout["amount"] + payout["fee"], "payout_succeeded", payout_id
        )
        return payout

    def fail(self, payout_id: str, reason: str = "rejected_by_bank") -> Json:
        """Refuse the payout as the bank. The reserved money is available again."""
        payout = self._require(payout_id, OPEN, "fail")
        self._set_status(payout, "failed", failure_reason=reason)
        self._release(payout, "payout_failed")
        return payout

    def return_(self, payout_id: str, reason: str = "returned_by_bank") -> Json:
        """Send the amount back as the bank, after success. The fee is not returned."""
        payout = self._require(payout_id, ("succeeded",), "be returned")
        self._set_status(payout, "returned", failure_reason=reason)
        self._context.ledger.credit(payout["currency"], payout["amount"], "payout_returned", payout_id)
        return payout

    def hold(self, payout_id: str) -> Json:
        """Hold the payout for a review: created or processing becomes on_hold."""
        payout = self._require(payout_id, ("created", "processing"), "be put on hold")
        self._set_status(payout, "on_hold")
        return payout

    def delay(self, payout_id: str) -> Json:
        """Emit payout.delayed, without a change of status."""
        payout = self._require(payout_id, OPEN, "be delayed")
        self._context.events.emit("payout.delayed", payout)
        return payout

    def _set_status(self, payout: Json, status: str, **changes: object) -> None:
        self._update(payout, status, **changes)
        self._context.emit(payout)
        if payout["refund_id"] is not None and self.on_change is not None:
            self.on_change(payout)

    def _release(self, payout: Json, reason: str) -> None:
        amount = payout["amount"] + payout["fee"]
        self._context.ledger.credit(payout["currency"], amount, reason, payout["id"], from_hold=amount)
