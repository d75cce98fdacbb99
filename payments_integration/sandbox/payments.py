"""Pay-ins: creation, cancelling, and everything a payer or the provider can make of one ("Payment",
"Payments").
"""

from __future__ import annotations

import copy
import heapq
from dataclasses import dataclass
from typing import Final

from .catalog import LIFETIMES, MAX_AMOUNT, METHODS, payment_fee
from .collection import Collection
from .desk import Desk
from .errors import ApiError, SandboxError
from .instructions import NOTHING, next_action
from .shapes import Wire, iso, new_id
from .validation import Fields

CREATE_FIELDS: Final = (
    "amount", "currency", "country", "method_code", "merchant_reference", "payer", "return_url", "flow",
    "metadata",
)  # fmt: skip
CANCELABLE: Final = ("created", "requires_action")
WAITING: Final = ("created", "requires_action", "processing")  # no money yet, and none refused
REFUNDABLE: Final = ("succeeded", "overpaid", "partially_paid")
TRANSFERS: Final = ("bank_transfer", "deposit_reference")  # families that can be paid in part or too much
INTERACTIVE: Final = ("card", "bank_redirect", "wallet")  # families that pass through processing


@dataclass
class Aside:
    """What the provider knows of a payment and does not show. Amounts in minor units."""

    return_url: str | None = None
    in_pending: int = 0  # net amount under review, in the pending balance
    claimed: int = 0  # amount of all refunds that are neither failed, canceled nor returned
    charged_back: int = 0
    deposit_reference_id: str | None = None


def check_minor_units(amount: object) -> int:
    """An amount given at the controls: a positive int no larger than the sandbox's bound."""
    if type(amount) is not int or not 0 < amount <= MAX_AMOUNT:
        raise SandboxError(f"an amount is an integer from 1 to {MAX_AMOUNT}, in minor units")
    return amount


class Payments:
    """The payments of one project, and the moves each status allows."""

    def __init__(self, desk: Desk) -> None:
        self.items = Collection()
        self.asides: dict[str, Aside] = {}
        self.processing_since: dict[str, str] = {}
        self._expiries: list[tuple[str, str]] = []  # a heap of (expires_at, id); iso times sort as text
        self._desk = desk

    # what the API does

    def create(self, body: Wire) -> Wire:
        """POST /payments. Required: amount, currency, country, method_code."""
        fields = Fields(body, CREATE_FIELDS)
        fields.require("amount", "currency", "country", "method_code")
        amount = fields.amount() or 0
        currency, country = fields.currency(), fields.country()
        code = fields.text("method_code") or ""
        reference = fields.text("merchant_reference", max_length=255)
        payer = fields.payer()
        return_url = fields.return_url()
        flow = fields.choice("flow", ("hosted", "s2s")) or "hosted"
        metadata = fields.metadata()
        method = self._desk.method(code, "payment", country, currency)
        self._desk.check_amount(amount, method)
        self._desk.check_payer(payer)

        payment_id, created_at = new_id("pay"), self._desk.stamp()
        page_url = self._desk.page_url(payment_id)
        direct = flow == "s2s" and method.next_action == "none"
        expires_at = None if direct else self._desk.after(LIFETIMES[method.family])
        action: Wire
        if flow == "hosted":
            action = {"type": "redirect", "redirect_url": page_url, "expires_at": expires_at}
        else:
            action = next_action(method, page_url, expires_at)
        payment = self._add(
            payment_id, amount, currency, country, code, method.family, flow,
            reference=reference, payer=payer, metadata=metadata,
            checkout_url=page_url if flow == "hosted" else None,
            action=action, created_at=created_at, expires_at=expires_at, aside=Aside(return_url=return_url),
        )  # fmt: skip
        if direct:
            self._move(payment, "processing")
        elif flow == "s2s":
            self._move(payment, "requires_action", action=action)
        return payment

    def cancel(self, payment_id: str) -> Wire:
        """POST /payments/{id}/cancel: 422 invalid_state unless created or requires_action."""
        payment = self.items.fetch(payment_id)
        if payment["status"] not in CANCELABLE:
            raise ApiError("invalid_state", f"A payment that is {payment['status']} cannot be canceled.")
        self._move(payment, "canceled")
        return payment

    # what happens at the payer's and the provider's side

    def open_page(self, payment_id: str) -> Wire:
        """The payer looks at the checkout page: created becomes requires_action."""
        payment = self.items.at_hand(payment_id)
        if payment["status"] == "created":
            self._move(payment, "requires_action", action=payment["next_action"])
        return payment

    def pay(self, payment_id: str, amount: int | None = None) -> Wire:
        """Money arrives: the rest that is missing, or for transfers any amount; also late, after expiry.

        A payment on hold is released by it.
        """
        payment = self.items.at_hand(payment_id)
        status, family = payment["status"], payment["method_family"]
        if status == "on_hold":
            return self._release(payment, amount)
        paid = status in ("succeeded", "overpaid")
        if status not in (*WAITING, "expired", "partially_paid") and not (paid and family in TRANSFERS):
            raise SandboxError(f"a payment that is {status} cannot be paid")
        rest = payment["amount"] - payment["amount_received"]
        if amount is None and rest <= 0:
            raise SandboxError("the payment is paid; give the amount of a further transfer")
        amount = check_minor_units(rest if amount is None else amount)
        if family not in TRANSFERS and amount != rest:
            raise SandboxError("only transfers can be paid in part or too much")
        if status in CANCELABLE and family in INTERACTIVE:
            self._move(payment, "processing")
        self._receive(payment, amount)
        return payment

    def process(self, payment_id: str) -> Wire:
        """The payer has done their part and the answer is not known yet: no longer cancelable."""
        payment = self._in(payment_id, CANCELABLE, "be processed")
        self._move(payment, "processing")
        return payment

    def fail(self, payment_id: str, reason: str = "declined") -> Wire:
        """The payment fails; money under review goes back to the payer."""
        payment = self._in(payment_id, (*WAITING, "on_hold"), "fail")
        pending = self._aside(payment).in_pending
        self._aside(payment).in_pending = 0
        self._move(payment, "failed", failure_reason=reason, amount_received=0, fee=0, net_amount=0)
        self._desk.ledger.await_settlement(payment["currency"], -pending, "payment_failed", payment_id)
        return payment

    def expire(self, payment_id: str) -> Wire:
        """The payer's time is up."""
        payment = self._in(payment_id, CANCELABLE, "expire")
        self._move(payment, "expired")
        return payment

    def hold(self, payment_id: str) -> Wire:
        """The money came and is under review: it counts as received and is pending. Pay releases it, fail
        returns it.
        """
        payment = self._in(payment_id, WAITING, "be put on hold")
        amount = payment["amount"]
        fee = payment_fee(payment["method_family"], amount)
        self._aside(payment).in_pending = amount - fee
        self._move(payment, "on_hold", amount_received=amount, fee=fee, net_amount=amount - fee)
        self._desk.ledger.await_settlement(payment["currency"], amount - fee, "payment_on_hold", payment_id)
        return payment

    def chargeback(self, payment_id: str) -> Wire:
        """The card's holder takes back what is not refunded: from the reserve, available money, then as a debt."""
        payment = self._in(payment_id, ("succeeded",), "be charged back")
        if payment["method_family"] != "card":
            raise SandboxError("only card payments are charged back")
        amount = self.refundable(payment)
        if amount == 0:
            raise SandboxError("the payment is refunded in full")
        aside = self._aside(payment)
        aside.charged_back = amount
        self._move(payment, "chargeback")
        self._desk.ledger.take_back(payment["currency"], amount, "chargeback", payment_id)
        return payment

    def receive_deposit(self, reference: Wire, payer: Wire | None, amount: int) -> Wire:
        """A transfer to a deposit reference creates a payment that has succeeded."""
        amount = check_minor_units(amount)
        method = METHODS[reference["method_code"]]
        payment = self._add(
            new_id("pay"), amount, reference["currency"], reference["country"], method.code, method.family,
            "deposit_reference", reference=reference.get("merchant_reference"), payer=payer, metadata={},
            checkout_url=None, action={**NOTHING, "reference": reference["details"]["reference"]},
            created_at=self._desk.stamp(), expires_at=None, aside=Aside(deposit_reference_id=reference["id"]),
        )  # fmt: skip
        self._receive(payment, amount)
        return payment

    def expire_due(self) -> None:
        """Expire what is due on the clock, in the order it fell due."""
        now = iso(self._desk.clock.now())
        while self._expiries and self._expiries[0][0] <= now:
            payment = self.items.at_hand(heapq.heappop(self._expiries)[1])
            if payment["status"] in CANCELABLE:
                self._move(payment, "expired")

    # what refunds need

    def refundable(self, payment: Wire) -> int:
        """What is left to refund, in minor units."""
        aside = self._aside(payment)
        return int(payment["amount_received"]) - aside.claimed - aside.charged_back

    def claim(self, payment: Wire, amount: int) -> None:
        """A refund of this amount begins; a negative amount: it came to nothing."""
        self._aside(payment).claimed += amount

    def count_refunded(self, payment: Wire, amount: int) -> None:
        """A refund succeeded (or, negative, came back). No event of the payment tells of it."""
        payment["refunded_amount"] += amount

    # inside

    def _aside(self, payment: Wire) -> Aside:
        return self.asides[payment["id"]]

    def _in(self, payment_id: str, statuses: tuple[str, ...], verb: str) -> Wire:
        payment = self.items.at_hand(payment_id)
        if payment["status"] not in statuses:
            raise SandboxError(f"a payment that is {payment['status']} cannot {verb}")
        return payment

    def _add(
        self, payment_id: str, amount: int, currency: str, country: str, code: str, family: str, flow: str, *,
        reference: str | None, payer: Wire | None, metadata: Wire, checkout_url: str | None, action: Wire,
        created_at: str, expires_at: str | None, aside: Aside,
    ) -> Wire:  # fmt: skip
        payment: Wire = {
            "id": payment_id,
            "object": "payment",
            "status": "created",
            "amount": amount,
            "amount_received": 0,
            "fee": 0,
            "net_amount": 0,
            "currency": currency,
            "country": country,
            "method_code": code,
            "method_family": family,
            "flow": flow,
            "checkout_url": checkout_url,
            "refunded_amount": 0,
            **({} if reference is None else {"merchant_reference": reference}),
            **({} if payer is None else {"payer": copy.deepcopy(payer)}),
            "next_action": action,
            "failure_reason": None,
            "metadata": metadata,
            "created_at": created_at,
            "expires_at": expires_at,
            "succeeded_at": None,
        }
        self.items.add(payment)
        self.asides[payment_id] = aside
        if expires_at is not None:
            heapq.heappush(self._expiries, (expires_at, payment_id))
        self._desk.emit(payment)
        return payment

    def _move(self, payment: Wire, status: str, *, action: Wire | None = None, **changes: object) -> None:
        if action is None:
            kept = {"reference": payment["next_action"]["reference"]} if payment["flow"] == "deposit_reference" else {}
            action = {**NOTHING, **kept}
        payment.update(status=status, next_action=action, **changes)
        if status == "processing":
            self.processing_since[payment["id"]] = self._desk.stamp()
        else:
            self.processing_since.pop(payment["id"], None)
        self._desk.emit(payment)

    def _receive(self, payment: Wire, amount: int) -> None:
        received = payment["amount_received"] + amount
        fee = payment_fee(payment["method_family"], received)
        gain = received - fee - payment["net_amount"]
        changes: Wire = {"amount_received": received, "fee": fee, "net_amount": received - fee}
        if received < payment["amount"]:
            self._move(payment, "partially_paid", action=payment["next_action"], **changes)
        else:
            changes["succeeded_at"] = payment["succeeded_at"] or self._desk.stamp()
            self._move(payment, "succeeded" if received == payment["amount"] else "overpaid", **changes)
        self._desk.ledger.credit(payment["currency"], gain, "payment", payment["id"])

    def _release(self, payment: Wire, amount: int | None) -> Wire:
        if amount not in (None, payment["amount_received"]):
            raise SandboxError("a payment on hold is released with the amount it was held with")
        pending = self._aside(payment).in_pending
        self._aside(payment).in_pending = 0
        self._move(payment, "succeeded", succeeded_at=self._desk.stamp())
        self._desk.ledger.credit(payment["currency"], pending, "payment_released", payment["id"], from_pending=pending)
        return payment
