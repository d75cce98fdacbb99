"""Permanent deposit references: each incoming transfer becomes a payment ("Deposit reference")."""

from __future__ import annotations

import copy
from typing import Final

from .collection import Collection
from .desk import Desk
from .errors import SandboxError
from .instructions import transfer_details
from .payments import Payments
from .shapes import Wire, new_id
from .validation import Fields

CREATE_FIELDS: Final = ("country", "currency", "method_code", "payer", "merchant_reference")


class Deposits:
    """The deposit references of one project. They have no list and no events of their own."""

    def __init__(self, desk: Desk, payments: Payments) -> None:
        self.items = Collection()
        self._payers: dict[str, Wire | None] = {}
        self._desk = desk
        self._payments = payments

    def create(self, body: Wire) -> Wire:
        """POST /deposit-references. Required: country, currency, method_code."""
        fields = Fields(body, CREATE_FIELDS)
        fields.require("country", "currency", "method_code")
        country, currency = fields.country(), fields.currency()
        code = fields.text("method_code") or ""
        payer = fields.payer()
        reference = fields.text("merchant_reference", max_length=255)
        method = self._desk.method(code, "deposit_reference", country, currency)
        self._desk.check_payer(payer)
        item: Wire = {
            "id": new_id("dep"),
            "object": "deposit_reference",
            "status": "active",
            "country": country,
            "currency": currency,
            "method_code": code,
            **({} if reference is None else {"merchant_reference": reference}),
            "details": transfer_details(method, (payer or {}).get("name", "Sandbox Payments Ltd")),
            "created_at": self._desk.stamp(),
        }
        self.items.add(item)
        self._payers[item["id"]] = copy.deepcopy(payer)
        return item

    def transfer(self, deposit_reference_id: str, amount: int) -> Wire:
        """Money arrives at the reference; returns the payment that it made."""
        reference = self.items.at_hand(deposit_reference_id)
        if reference["status"] != "active":
            raise SandboxError("the deposit reference is disabled")
        return self._payments.receive_deposit(reference, self._payers[deposit_reference_id], amount)

    def set_status(self, deposit_reference_id: str, status: str) -> Wire:
        """Make a reference active or disabled."""
        reference = self.items.at_hand(deposit_reference_id)
        if status not in ("active", "disabled"):
            raise SandboxError("a deposit reference is active or disabled")
        reference["status"] = status
        return reference
