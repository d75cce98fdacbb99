"""Create deposit references, and payments from transfers to them ("Deposit references")."""

from __future__ import annotations

import copy
from typing import Final

from .catalog import transfer_details
from .payments import Payments
from .protocol import Json
from .resources import Collection, ProjectContext, SandboxError, new_id
from .validation import Fields

CREATE_FIELDS: Final = ("country", "currency", "method_code", "payer", "merchant_reference")


class DepositReferences:
    """The deposit references of one project. They have no list and no events of their own."""

    def __init__(self, context: ProjectContext, payments: Payments) -> None:
        self.items = Collection()
        self.payers: dict[str, Json | None] = {}
        self._context = context
        self._payments = payments

    def create(self, body: Json) -> Json:
        """POST /deposit-references. Required: country, currency, method_code."""
        fields = Fields(body, CREATE_FIELDS)
        fields.require("country", "currency", "method_code")
        country, currency = fields.country(), fields.currency()
        code = fields.text("method_code") or ""
        payer = fields.payer()
        reference = fields.text("merchant_reference", max_length=255)
        method = self._context.terms.method(code, "deposit_reference", country, currency)
        self._context.terms.check_payer(payer)
        item: Json = {
            "id": new_id("dep"),
            "object": "deposit_reference",
            "status": "active",
            "country": country,
            "currency": currency,
            "method_code": code,
            **({} if reference is None else {"merchant_reference": reference}),
            "details": transfer_details(method, (payer or {}).get("name", "Sandbox Payments Ltd")),
            "created_at": self._context.stamp(),
        }
        self.items.add(item)
        self.payers[item["id"]] = copy.deepcopy(payer)
        return item

    def transfer(self, deposit_reference_id: str, amount: int) -> Json:
        """Receive money at the reference. Returns the new payment."""
        reference = self.items.find(deposit_reference_id)
        if reference["status"] != "active":
            raise SandboxError("the deposit reference is disabled")
        return self._payments.receive_deposit(reference, self.payers[deposit_reference_id], amount)

    def disable(self, deposit_reference_id: str) -> Json:
        """Accept no more transfers to the reference."""
        reference = self.items.find(deposit_reference_id)
        reference["status"] = "disabled"
        return reference
