"""Create payments, and do all that payers and the provider can do with them ("Payments")."""

from __future__ import annotations

import copy
import heapq
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from .catalog import LIFETIMES, MAX_AMOUNT, METHODS, NO_ACTION, Method, next_action, payment_fee
from .clock import iso
from .magic import Step, steps_of
from .protocol import Json
from .resources import ProjectContext, Resources, SandboxError, new_id
from .validation import Fields

CREATE_FIELDS: Final = (
    "amount", "currency", "country", "method_code", "merchant_reference", "payer", "return_url", "flow",
    "metadata",
)  # fmt: skip
CANCELABLE: Final = ("created", "requires_action")
WAITING: Final = ("created", "requires_action", "processing")  # no money has arrived yet
REFUNDABLE: Final = ("succeeded", "overpaid", "partially_paid")
TRANSFERS: Final = ("bank_transfer", "deposit_reference")  # families that accept partial and excess amounts
INTERACTIVE: Final = ("card", "bank_redirect", "wallet")  # families that pass through processing


@dataclass
class PaymentInternals:
    """The provider's internal data of a payment, which the API does not show. Amounts in minor units."""

    return_url: str | None = None
    in_pending: int = 0  # net amount under review, in the pending balance
    refund_total: int = 0  # the sum of all refunds that are not failed, canceled or returned
    charged_back: int = 0
    steps: list[Step] = field(default_factory=list)  # from the table of magic values, next first


def check_minor_units(amount: object) -> int:
    """Return the amount of a control. Raises SandboxError unless it is an int from 1 to MAX_AMOUNT."""
    if type(amount) is not int or not 0 < amount <= MAX_AMOUNT:
        raise SandboxError(f"an amount is an integer from 1 to {MAX_AMOUNT}, in minor units")
    return amount


class Payments(Resources):
    """The payments of one project, and the actions that each status allows."""

    def __init__(self, context: ProjectContext) -> None:
        super().__init__(context)
        self.internals: dict[str, PaymentInternals] = {}
        self._expiries: list[tuple[str, str]] = []  # a heap of (expires_at, id); iso times sort as text
        self._next_steps: list[tuple[datetime, str]] = []  # a heap of (time of the next step, id)

    # requests of the API

    def create(self, body: Json) -> Json:
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
        method = self._context.terms.method(code, "payment", country, currency)
        method.check_amount(amount)
        self._context.terms.check_payer(payer)

        steps = steps_of(body, method, self._context.clock.now())

        payment_id, created_at = new_id("pay"), self._context.stamp()
        page_url = self._context.page_url(payment_id)
        direct = flow == "s2s" and method.next_action == "none"
        lifetime = timedelta(seconds=LIFETIMES[method.family])
        expires_at = None if direct else iso(self._context.clock.now() + lifetime)
        action: Json = {"type": "redirect", "redirect_url": page_url, "expires_at": expires_at}
        if flow == "s2s":
            action = next_action(method, page_url, expires_at)
        payment = self._add(
            payment_id, method, flow, amount, created_at,
            reference=reference, payer=payer, metadata=metadata, return_url=return_url,
            checkout_url=page_url if flow == "hosted" else None, action=action, expires_at=expires_at,
        )  # fmt: skip
        if direct:
            self._set_status(payment, "processing")
        elif flow == "s2s":
            self._set_status(payment, "requires_action", action=action)
        self._plan(payment_id, steps)
        return payment

    def cancel(self, payment_id: str) -> Json:
        """POST /payments/{id}/cancel. Raises invalid_state (422) unless created or requires_action."""
        payment = self._require_cancelable(payment_id, CANCELABLE)
        self._set_status(payment, "canceled")
        return payment

    # actions of the payer and the provider

    def open_page(self, payment_id: str) -> Json:
        """Open the checkout page as the payer: created becomes requires_action."""
        payment = self.items.find(payment_id)
        if payment["status"] == "created":
            self._set_status(payment, "requires_action", action=payment["next_action"])
        return payment

    def pay(self, payment_id: str, amount: int | None = None) -> Json:
        """Receive the missing amount, or any amount by transfer, even after expiry.

        Releases a payment that is on hold.
        """
        payment = self.items.find(payment_id)
        status, family = payment["status"], payment["method_family"]
        if status == "on_hold":
            return self._release(payment, amount)
        paid = status in ("succeeded", "overpaid")
        if status not in (*WAITING, "expired", "partially_paid") and not (paid and family in TRANSFERS):
            raise SandboxError(f"a payment that is {status} cannot be paid")
        rest = payment["amount"] - payment["amount_received"]
        if amount is None and rest <= 0:
            raise SandboxError("the payment is already paid; pass the amount of a further transfer")
        amount = check_minor_units(rest if amount is None else amount)
        if family not in TRANSFERS and amount != rest:
            raise SandboxError("only transfers accept a partial or excess amount")
        if status in CANCELABLE and family in INTERACTIVE:
            self._set_status(payment, "processing")
        self._credit(payment, amount)
        return payment

    def process(self, payment_id: str) -> Json:
        """Confirm as the payer while the result is unknown. The payment can no longer be canceled."""
        payment = self._require(payment_id, CANCELABLE, "be processed")
        self._set_status(payment, "processing")
        return payment

    def fail(self, payment_id: str, reason: str = "declined") -> Json:
        """Fail the payment. Money under review goes back to the payer."""
        payment = self._require(payment_id, (*WAITING, "on_hold"), "fail")
        pending = self._internals(payment).in_pending
        self._internals(payment).in_pending = 0
        self._set_status(payment, "failed", failure_reason=reason, amount_received=0, fee=0, net_amount=0)
        self._context.ledger.add_pending(payment["currency"], -pending, "payment_failed", payment_id)
        return payment

    def expire(self, payment_id: str) -> Json:
        """Let the payer's time run out."""
        payment = self._require(payment_id, CANCELABLE, "expire")
        self._set_status(payment, "expired")
        return payment

    def hold(self, payment_id: str) -> Json:
        """Put the money under review when it arrives: received and pending. pay() releases it, fail() returns it."""
        payment = self._require(payment_id, WAITING, "be put on hold")
        amount = payment["amount"]
        fee = payment_fee(payment["method_family"], amount)
        self._internals(payment).in_pending = amount - fee
        self._set_status(payment, "on_hold", amount_received=amount, fee=fee, net_amount=amount - fee)
        self._context.ledger.add_pending(payment["currency"], amount - fee, "payment_on_hold", payment_id)
        return payment

    def chargeback(self, payment_id: str) -> Json:
        """Take back, as the cardholder, the amount that is not refunded yet. A shortfall becomes debt."""
        payment = self._require(payment_id, ("succeeded",), "be charged back")
        if payment["method_family"] != "card":
            raise SandboxError("only card payments are charged back")
        amount = self.refundable(payment)
        if amount == 0:
            raise SandboxError("the payment is refunded in full")
        self._internals(payment).charged_back = amount
        self._set_status(payment, "chargeback")
        self._context.ledger.charge_back(payment["currency"], amount, "chargeback", payment_id)
        return payment

    def receive_deposit(self, reference: Json, payer: Json | None, amount: int) -> Json:
        """Create a succeeded payment for a transfer to a deposit reference."""
        amount = check_minor_units(amount)
        payment = self._add(
            new_id("pay"), METHODS[reference["method_code"]], "deposit_reference", amount, self._context.stamp(),
            reference=reference.get("merchant_reference"), payer=payer,
            action={**NO_ACTION, "reference": reference["details"]["reference"]},
        )  # fmt: skip
        self._credit(payment, amount)
        return payment

    def take_due_steps(self) -> None:
        """Take the due steps of magic values. A step that the status does not allow ends them."""
        while self._next_steps and self._next_steps[0][0] <= self._context.clock.now():
            payment_id = heapq.heappop(self._next_steps)[1]
            steps = self._internals(self.items.find(payment_id)).steps
            try:
                self._take_step(payment_id, steps.pop(0).action)
            except SandboxError:
                steps.clear()  # a person or a request has done something else
            self._plan(payment_id, steps)

    def _take_step(self, payment_id: str, action: str) -> None:
        amount = self.items.find(payment_id)["amount"]
        if action == "pay_half":
            self.pay(payment_id, amount // 2)
        elif action == "pay_double":
            self.pay(payment_id, min(2 * amount, MAX_AMOUNT))
        else:
            getattr(self, action)(payment_id)

    def _plan(self, payment_id: str, steps: list[Step]) -> None:
        self.internals[payment_id].steps = steps
        if steps:
            heapq.heappush(self._next_steps, (steps[0].at, payment_id))

    def expire_due(self) -> None:
        """Expire the payments that are due on the clock, in the order of their expiry."""
        now = iso(self._context.clock.now())
        while self._expiries and self._expiries[0][0] <= now:
            payment = self.items.find(heapq.heappop(self._expiries)[1])
            if payment["status"] in CANCELABLE:
                self._set_status(payment, "expired")

    def restore(self, payments: list[Json], internals: dict[str, PaymentInternals]) -> None:
        """Load the payments of an earlier run, oldest first."""
        for payment in payments:
            self.items.add(payment)
            if payment["expires_at"] is not None and payment["status"] in CANCELABLE:
                heapq.heappush(self._expiries, (payment["expires_at"], payment["id"]))
        for payment_id, internal in internals.items():
            self.internals[payment_id] = internal
            self._plan(payment_id, internal.steps)

    # for refunds

    def refundable(self, payment: Json) -> int:
        """Return the refundable rest, in minor units."""
        internals = self._internals(payment)
        return int(payment["amount_received"]) - internals.refund_total - internals.charged_back

    def add_refund(self, payment: Json, amount: int) -> None:
        """Count a new refund of this amount. A negative amount takes back a refund that did not succeed."""
        self._internals(payment).refund_total += amount

    def count_refunded(self, payment: Json, amount: int) -> None:
        """Add a succeeded refund to refunded_amount, without an event. For a returned one, the amount is negative."""
        payment["refunded_amount"] += amount

    def _internals(self, payment: Json) -> PaymentInternals:
        return self.internals[payment["id"]]

    def _add(
        self, payment_id: str, method: Method, flow: str, amount: int, created_at: str, *, action: Json,
        reference: str | None, payer: Json | None, metadata: Json | None = None, return_url: str | None = None,
        checkout_url: str | None = None, expires_at: str | None = None,
    ) -> Json:  # fmt: skip
        payment: Json = {
            "id": payment_id,
            "object": "payment",
            "status": "created",
            "amount": amount,
            "amount_received": 0,
            "fee": 0,
            "net_amount": 0,
            "currency": method.currency,
            "country": method.country,
            "method_code": method.code,
            "method_family": method.family,
            "flow": flow,
            "checkout_url": checkout_url,
            "refunded_amount": 0,
            **({} if reference is None else {"merchant_reference": reference}),
            **({} if payer is None else {"payer": copy.deepcopy(payer)}),
            "next_action": action,
            "failure_reason": None,
            "metadata": metadata or {},
            "created_at": created_at,
            "expires_at": expires_at,
            "succeeded_at": None,
        }
        self.items.add(payment)
        self.internals[payment_id] = PaymentInternals(return_url)
        if expires_at is not None:
            heapq.heappush(self._expiries, (expires_at, payment_id))
        self._context.emit(payment)
        return payment

    def _set_status(self, payment: Json, status: str, *, action: Json | None = None, **changes: object) -> None:
        if action is None:
            kept = {"reference": payment["next_action"]["reference"]} if payment["flow"] == "deposit_reference" else {}
            action = {**NO_ACTION, **kept}
        self._update(payment, status, next_action=action, **changes)
        self._context.emit(payment)

    def _credit(self, payment: Json, amount: int) -> None:
        received = payment["amount_received"] + amount
        fee = payment_fee(payment["method_family"], received)
        gain = received - fee - payment["net_amount"]
        changes: Json = {"amount_received": received, "fee": fee, "net_amount": received - fee}
        if received < payment["amount"]:
            self._set_status(payment, "partially_paid", action=payment["next_action"], **changes)
        else:
            changes["succeeded_at"] = payment["succeeded_at"] or self._context.stamp()
            self._set_status(payment, "succeeded" if received == payment["amount"] else "overpaid", **changes)
        self._context.ledger.credit(payment["currency"], gain, "payment", payment["id"])

    def _release(self, payment: Json, amount: int | None) -> Json:
        if amount not in (None, payment["amount_received"]):
            raise SandboxError("a payment on hold can only be released with its full amount")
        pending = self._internals(payment).in_pending
        self._internals(payment).in_pending = 0
        self._set_status(payment, "succeeded", succeeded_at=self._context.stamp())
        self._context.ledger.credit(
            payment["currency"], pending, "payment_released", payment["id"], from_pending=pending
        )
        return payment
