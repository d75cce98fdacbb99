"""Tell what happened to an object, in sentences that name people: each step once, in the order in which it happened.

The records that the story is made from (``records``) are below it, folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib.admin.models import LogEntry
from django.utils.html import conditional_escape, format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _, gettext_lazy, pgettext

from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import may
from payments_integration.admin.shared.history import ids_in
from payments_integration.admin.shared.people import is_erased, name_in
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.contrib.backoffice.admin.sections.people import payment_of
from payments_integration.contrib.backoffice.admin.sections.records import ENTRIES, Records, made
from payments_integration.enums import Kind, PaymentStatus, RefundStatus
from payments_integration.models import (
    DepositReference,
    Mirror,
    Operation,
    OperationState,
    Payment,
    Payout,
    Refund,
)
from payments_integration.payer.names import reason_text
from payments_integration.permissions import user_id
from payments_integration.validation.text import StrOrPromise

#: The pages that tell a story, and how it begins.
_BEGUN: dict[type[Mirror], StrOrPromise] = {
    Payment: gettext_lazy("The payment of {amount} was created"),
    Payout: gettext_lazy("The payout of {amount} was created"),
    Refund: gettext_lazy("The refund of {amount} was created"),
    DepositReference: gettext_lazy("The deposit reference was created"),
}
#: What a change to each status means. ``{who}``: the payer or the recipient.
_STATUSES: dict[tuple[str, str], StrOrPromise] = {
    (Kind.PAYMENT, "requires_action"): gettext_lazy("{who} can pay now"),
    (Kind.PAYMENT, "processing"): gettext_lazy("The payment is being processed"),
    (Kind.PAYMENT, "on_hold"): gettext_lazy("The provider put the payment on hold to review it"),
    (Kind.PAYMENT, "partially_paid"): gettext_lazy("{who} paid a part"),
    (Kind.PAYMENT, "overpaid"): gettext_lazy("{who} paid more than {amount}"),
    (Kind.PAYMENT, "succeeded"): gettext_lazy("{who} paid {amount}"),
    (Kind.PAYMENT, "failed"): gettext_lazy("The payment failed"),
    (Kind.PAYMENT, "expired"): gettext_lazy("{who} did not pay in time"),
    (Kind.PAYMENT, "canceled"): gettext_lazy("The payment was canceled"),
    (Kind.PAYMENT, "chargeback"): gettext_lazy("The payer's bank took the money back"),
    (Kind.PAYOUT, "processing"): gettext_lazy("The provider is sending it"),
    (Kind.PAYOUT, "on_hold"): gettext_lazy("The provider put the payout on hold"),
    (Kind.PAYOUT, "delayed"): gettext_lazy("The provider says that it takes longer"),
    (Kind.PAYOUT, "succeeded"): gettext_lazy("{amount} was sent to {who}"),
    (Kind.PAYOUT, "failed"): gettext_lazy("The payout failed"),
    (Kind.PAYOUT, "canceled"): gettext_lazy("The payout was canceled"),
    (Kind.PAYOUT, "returned"): gettext_lazy("The bank sent the money back"),
    (Kind.REFUND, "processing"): gettext_lazy("The provider is sending the money back to {who}"),
    (Kind.REFUND, "succeeded"): gettext_lazy("{amount} was sent back to {who}"),
    (Kind.REFUND, "failed"): gettext_lazy("The refund failed: nothing was refunded"),
    (Kind.REFUND, "canceled"): gettext_lazy("The refund was canceled: nothing was refunded"),
    (Kind.REFUND, "returned"): gettext_lazy("The bank sent the money back: nothing was refunded"),
    (Kind.DEPOSIT_REFERENCE, "disabled"): gettext_lazy("Payers can no longer use it"),
}
#: The first status, which the beginning of the story already tells.
_FIRST = frozenset({"created", "active"})
#: Who asked for what: ``_ASKED`` while it is not done, ``_DID`` once it is.
_ASKED: dict[str, StrOrPromise] = {
    "create_payment": gettext_lazy("{who} asked for a payment of {amount}"),
    "cancel_payment": gettext_lazy("{who} asked to cancel the payment"),
    "create_refund": gettext_lazy("{who} asked for a refund of {amount}"),
    "create_payout": gettext_lazy("{who} asked for a payout of {amount}"),
    "cancel_payout": gettext_lazy("{who} asked to cancel the payout"),
    "create_deposit_reference": gettext_lazy("{who} asked for a deposit reference"),
}
_DID: dict[str, StrOrPromise] = {
    **_ASKED,
    "create_payment": gettext_lazy("{who} created the payment of {amount}"),
    "cancel_payment": gettext_lazy("{who} canceled the payment"),
    "cancel_payout": gettext_lazy("{who} canceled the payout"),
    "create_deposit_reference": gettext_lazy("{who} created the deposit reference"),
}
#: Placeholders for roles. A name never contains NUL.
_THE_PAYER, _THE_RECIPIENT, _THE_SHOP = "\0payer", "\0recipient", "\0shop"
_CANCELS = frozenset({"cancel_payment", "cancel_payout"})
_PAID = {"succeeded", "overpaid"}
#: The statuses before an outcome.
_OPEN = {"requires_action", "processing"}
#: An entry in the history without an id is the same step as a cancel or an approval within this time.
_SAME_STEP = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Step:
    at: datetime
    #: A sentence, escaped.
    sentence: str
    #: Less prominent text beside it, such as a reason or a badge. Escaped.
    beside: tuple[str, ...] = ()
    #: Text with line breaks below it, such as a note.
    text: str = ""
    #: Orders the steps of one second, lowest first, because the provider's times may have only whole seconds.
    rank: int = 2

    @property
    def shown_at(self) -> str:
        return display.moment(self.at)


@dataclass(frozen=True, slots=True)
class Story(Section):
    template: ClassVar[str] = "admin/payments_backoffice/includes/story.html"

    steps: list[Step]
    #: True if there are older records that were not read.
    is_cut: bool


def story(page: Page, obj: Any, records: Records, more: Iterable[Step] = ()) -> Story:
    """Return the story of a payment, payout, refund or deposit reference, with ``more`` steps. Takes no queries."""
    steps = [*_Teller(page, obj, records).steps(), *more]
    steps.sort(key=lambda step: (step.at.replace(microsecond=0), step.rank, step.at))
    read = (records.events, records.changes, records.operations, records.refunds, records.logged)
    return Story(steps, is_cut=any(len(rows) >= ENTRIES for rows in read))


class _Teller:
    """Tells the story of one object."""

    def __init__(self, page: Page, obj: Any, records: Records) -> None:
        self.page = page
        self.obj = obj
        self.records = records
        self.amount = display.money(obj.amount, obj.currency) if hasattr(obj, "amount") else ""
        self.who = _person(page, obj)

    def steps(self) -> Iterator[Step]:
        yield from self._beginning()
        for operation in sorted(self.records.operations, key=lambda row: row.created_at):
            yield from self._operation(operation)
        yield from self._changes()
        yield from self._refunds()
        yield from self._logged()

    def _beginning(self) -> Iterator[Step]:
        if not any(self._made_this(operation) for operation in self.records.operations):
            yield Step(self.obj.created_at, self._say(_BEGUN[type(self.obj)]), rank=0)

    def _made_this(self, operation: Operation) -> bool:
        return made(operation) and operation.result_id == self.obj.object_id

    def _operation(self, row: Operation) -> Iterator[Step]:
        """Tell who asked for it, and who approved it. A refund that is shown has its own step."""
        refund = self._refund_of(row)
        if refund is None:
            # A cancel is done if it canceled the object in time. Otherwise only the request is done.
            is_done = row.state == OperationState.DONE and (row.operation not in _CANCELS or self._is_canceled)
            words = (_DID if is_done else _ASKED).get(row.operation)
            amount = display.money(row.amount, row.currency) if row.amount is not None else ""
            who = _actor(self.page, row)
            sentence: str
            if words is None:
                sentence = format_html("{}: {}", who, display.operation_name(row.operation))
            else:
                sentence = _filled(words, who=who, amount=amount)
            state = () if row.state == OperationState.DONE else (display.status(row.state, OperationState),)
            link = display.admin_link(self.page.site, Operation, row.pk, _("details"))
            if self._made_this(row):
                # This step comes first, whichever clock is ahead.
                yield Step(min(row.created_at, self.obj.created_at), sentence, (*state, link), rank=0)
            else:
                yield Step(row.created_at, sentence, (*state, link))
        if row.approved_by and row.approved_at:
            if row.amount is None:
                sentence = _filled(gettext_lazy("{who} approved it"), who=display.actor(row.approved_by))
            else:
                approved = display.money(row.amount, row.currency)
                words = gettext_lazy("{who} approved {amount}")
                sentence = _filled(words, who=display.actor(row.approved_by), amount=approved)
            yield Step(row.approved_at, sentence)

    def _refund_of(self, row: Operation) -> Refund | None:
        """Return the refund of this payment that the operation created."""
        if not made(row):
            return None
        return next((refund for refund in self.records.refunds if refund.pk == row.result_id), None)

    def _changes(self) -> Iterator[Step]:
        told = {"canceled"} if self._cancels() else set()
        seen = set(told)
        for change in sorted(self.records.changes, key=lambda row: (row.at, row.pk)):
            seen.add(change.status)
            if change.status not in told and not (change.status in _FIRST and not change.previous_status):
                yield self._status(change.status, change.at)
        brought = {change.event_id for change in self.records.changes}
        for event in sorted(self.records.events, key=lambda row: (row.created_at, row.pk)):
            status = event.type.partition(".")[2]
            # The mirror says if money arrived. The event's name does not.
            if event.pk in brought or status in seen or status in _FIRST or status in _PAID:
                continue
            seen.add(status)
            if (self.obj.kind, status) in _STATUSES:
                yield self._status(status, event.created_at)
            else:
                yield Step(event.created_at, display.event_name(event.type))
        # The object itself says when it succeeded. Users who see no records need this step.
        at = getattr(self.obj, "succeeded_at", None)
        if at and not seen & _PAID:
            yield self._status(PaymentStatus.SUCCEEDED, at)

    @property
    def _is_canceled(self) -> bool:
        return self.obj.status == "canceled" or any(row.status == "canceled" for row in self.records.changes)

    def _cancels(self) -> list[Operation]:
        """Return the cancels by people or the shop that were done."""
        return [
            row for row in self.records.operations if row.operation in _CANCELS and row.state == OperationState.DONE
        ]

    def _status(self, status: str, at: datetime) -> Step:
        words = _STATUSES.get((self.obj.kind, status))
        if words is None:
            return Step(at, _filled(gettext_lazy("Now {status}"), status=display.status_word(self.obj.kind, status)))
        reason = getattr(self.obj, "failure_reason", "") if status == self.obj.status else ""
        beside = (self.page.personal(reason_text(reason)),) if reason else ()
        return Step(at, self._say(words), beside, rank=1 if status in _OPEN else 2)

    def _refunds(self) -> Iterator[Step]:
        """Tell each refund of a payment once: who asked for it, why, and what became of it."""
        asked = {row.result_id: row for row in self.records.operations if made(row)}
        for refund in sorted(self.records.refunds, key=lambda row: (row.created_at, row.pk)):
            operation = asked.get(refund.pk)
            amount = _linked(self.page, refund, display.money(refund.amount, refund.currency))
            who = self._logged_as(refund.pk) if operation is None else _actor(self.page, operation)
            was_approved = operation is not None and operation.approved_by
            if not who:
                sentence = _filled(gettext_lazy("A refund of {amount} was asked for"), amount=amount)
            elif refund.status == RefundStatus.SUCCEEDED and not was_approved:
                sentence = _filled(gettext_lazy("{who} refunded {amount}"), who=who, amount=amount)
            else:
                sentence = _filled(_ASKED["create_refund"], who=who, amount=amount)
            reason = (self.page.personal(refund.reason),) if refund.reason else ()
            badge = display.status(refund.status, RefundStatus)
            if (at := self.records.reached.get(refund.pk)) and refund.status not in _FIRST:
                # The step stands where it was asked for. A bank may take days.
                badge = format_html("{} <time>{}</time>", badge, display.moment(at))
            yield Step(refund.created_at if operation is None else operation.created_at, sentence, (*reason, badge))

    def _logged_as(self, refund_id: str) -> str:
        """Return who asked for a refund according to the payment's history; empty if it has no entry."""
        entries = (row for row in self.records.logged if refund_id in ids_in(row))
        return next((row.user.get_username() for row in entries), "")

    def _logged(self) -> Iterator[Step]:
        """Tell what people did in this admin, if no other step tells it."""
        for row in reversed(self.records.logged):
            if not self._is_told(row):
                words = f"{row.user.get_username()}: {row.get_change_message()}"
                yield Step(row.action_time, display.text(words))

    def _is_told(self, entry: LogEntry) -> bool:
        operations = self.records.operations
        known = {row.pk for row in (*operations, *self.records.refunds)} | {row.result_id for row in operations}
        if known & ids_in(entry):
            return True
        who, at = user_id(entry.user), entry.action_time
        if any(row.actor_id == who and abs(at - row.created_at) < _SAME_STEP for row in self._cancels()):
            return True
        for row in operations:
            if row.pk == entry.object_id and row.approved_at and row.approved_by.startswith(f"{who}:"):
                return abs(at - row.approved_at) < _SAME_STEP
        return False

    def _say(self, words: StrOrPromise) -> str:
        return _filled(words, who=self.who, amount=self.amount)


def _person(page: Page, obj: Mirror) -> str:
    """Return the person the story is about: the name if the user may see it, otherwise the role."""
    if isinstance(obj, Refund):
        payment = payment_of(page, obj)
        return _THE_PAYER if payment is None else _person(page, payment)
    field, role = ("destination", _THE_RECIPIENT) if isinstance(obj, Payout) else ("payer", _THE_PAYER)
    if field not in obj.personal or is_erased(obj, field) or not may(page.request, "view_personal_data"):
        return role
    name = name_in(getattr(obj, field))
    return display.text(name) if name else role


def _actor(page: Page, operation: Operation) -> str:
    """Return who asked for it: a user, a job, or the shop if the site's code gave no name."""
    return display.requester(page.site, operation) if operation.actor else _THE_SHOP


def _filled(words: StrOrPromise, *, who: str = "", **values: str) -> str:
    """Return a sentence with escaped values. At its beginning, a role gets a capital letter; a name is unchanged."""
    text = str(words)
    shown = _roles().get(who, who)
    return format_html(text, who=capfirst(shown) if who in _roles() and text.startswith("{who}") else shown, **values)


def _roles() -> dict[str, str]:
    return {
        _THE_PAYER: pgettext("in a sentence", "the payer"),
        _THE_RECIPIENT: pgettext("in a sentence", "the recipient"),
        _THE_SHOP: pgettext("in a sentence", "the shop"),
    }


def _linked(page: Page, refund: Refund, shown: str) -> str:
    url = display.change_url(page.site, Refund, refund.pk)
    return format_html('<a href="{}">{}</a>', url, shown) if url else conditional_escape(shown)
