"""Money out to bank accounts (spec, "Payouts")."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _

from payments_integration import sync
from payments_integration.client import Client
from payments_integration.enums import CANCELABLE_PAYOUT_STATUSES, VOID_PAYOUT_STATUSES, Kind
from payments_integration.models import Balance, Operation, OperationState, Payout
from payments_integration.money import format_money
from payments_integration.outbox.operations.base import (
    Candidates,
    Creation,
    Intent,
    Precondition,
    PreconditionFailed,
    asked_late,
    reaches_approval_limit,
)
from payments_integration.outbox.operations.cancels import Cancel
from payments_integration.outbox.operations.lost import KEY_IS_KNOWN, not_ours

#: If a user has asked for the same payout so recently, a job that asks for it may not know.
SAME_WITHIN = timedelta(days=1)


class CreatePayout(Creation):
    name, label, kind = "create_payout", _("new payout"), Kind.PAYOUT
    permission = "create_payout"
    approval_request = _("%(who)s asked on %(at)s to send %(amount)s to a bank account.")
    sends_money_out = True

    def precondition(self, intent: Intent) -> Precondition:
        return BalanceCovers(intent.account, intent.currency, intent.amount or 0)

    def needs_approval(self, intent: Intent) -> bool:
        return reaches_approval_limit(intent.amount, intent.currency)

    def look_up(self, client: Client, operation: Operation) -> Candidates:
        listed = client.payouts.list(
            merchant_reference=operation.merchant_reference, max_wait=sync.WORKER_WAIT, background=True
        )
        return self.candidates(operation, listed)

    def may_be_a_repeat(self, intent: Intent) -> bool:
        lost, same = self.lost_results(intent), self.same_by_user(intent)
        if lost is None:
            return False
        ids = lost.order_by().values_list("pk")
        return bool(ids[:1] if same is None else ids.union(same.order_by().values_list("pk"), all=True)[:1])

    def lost_results(self, asked: Intent | Operation) -> QuerySet[Any] | None:
        if not asked.merchant_reference:
            return None
        rows = Payout.objects.filter(merchant_reference=asked.merchant_reference, currency=asked.currency, refund=None)
        return not_ours(rows.exclude(status__in=VOID_PAYOUT_STATUSES), asked)

    def same_by_user(self, asked: Intent | Operation) -> QuerySet[Operation] | None:
        if asked.actor_id or not asked.merchant_reference:
            return None
        at = asked.created_at if isinstance(asked, Operation) else timezone.now()
        same = Operation.objects.filter(
            ~Exists(Payout.objects.filter(pk=OuterRef("result_id"), status__in=VOID_PAYOUT_STATUSES)),
            account=asked.account,
            operation=self.name,
            merchant_reference=asked.merchant_reference,
            amount=asked.amount,
            currency=asked.currency,
            created_at__gte=at - SAME_WITHIN,
        )
        return same.exclude(actor_id="").exclude(state__in=(OperationState.REJECTED, OperationState.CLOSED))

    def is_certain(self, operation: Operation, item: Any) -> bool:
        # Payouts may share a reference of the merchant: an older one may have gone to another person.
        began = operation.caused_at if asked_late(operation) else operation.created_at
        is_older = not operation.may_have_run and item.created_at < (began or operation.created_at) - KEY_IS_KNOWN
        if (is_older and operation.merchant_reference != operation.pk) or _goes_elsewhere(operation, item):
            return False
        return super().is_certain(operation, item)

    def fits(self, operation: Operation, item: Any) -> bool:
        # A refund that runs as a payout carries the reference of its payment.
        return item.refund_id is None and super().fits(operation, item)


def _goes_elsewhere(operation: Operation, item: Any) -> bool:
    """Return True if the money went to another bank account, as far as both are known."""
    ends = [_end_of_account(each) for each in (operation.arguments.get("destination"), item.destination)]
    return all(ends) and ends[0] != ends[1]


def _end_of_account(destination: Any) -> str:
    """Return the end of the account number, the part that a provider shows of it in any case."""
    return _code(destination, "account_number")[-4:]


def is_same_bank_account(one: Any, other: Any) -> bool:
    """Return True if two destinations are the same bank account, however it is written.

    A bank code that one of them leaves out may be the other's.
    """
    numbers, banks = ([_code(each, name) for each in (one, other)] for name in ("account_number", "bank_code"))
    return numbers[0] == numbers[1] and (not all(banks) or banks[0] == banks[1])


def _code(destination: Any, name: str) -> str:
    """Return a value of a bank account without blanks and punctuation, because people write it in several ways."""
    return "".join(filter(str.isalnum, str((destination or {}).get(name) or ""))).casefold()


class CancelPayout(Cancel):
    name, label, kind = "cancel_payout", _("cancel of a payout"), Kind.PAYOUT
    target, permission, cancelable = Kind.PAYOUT, "cancel_payout", CANCELABLE_PAYOUT_STATUSES


@dataclass(frozen=True, slots=True)
class BalanceCovers(Precondition):
    """The available balance covers the payout and there is no debt, as far as the mirror knows.

    Ignores the fee, which is known only afterwards, and takes no lock: this only saves a request that the provider
    would refuse. The provider decides between two simultaneous payouts.
    """

    #: The mirror may be old, and a transaction cannot bring it up to date.
    when_deferred: ClassVar[bool] = False

    account: str
    currency: str
    amount: int

    def decide(self, intent: Intent) -> Intent:
        balance = Balance.objects.filter(account=self.account, currency=self.currency, gone_at=None).first()
        if balance is not None and (balance.available < self.amount or balance.debt > 0):
            message = gettext("The available balance is %(available)s (hold %(hold)s).")
            if balance.debt > 0:
                message = gettext("Nothing is paid out while there is a debt (%(debt)s). Available: %(available)s.")
            amounts = {
                name: format_money(getattr(balance, name), self.currency) for name in ("available", "debt", "hold")
            }
            raise PreconditionFailed({"amount": ValidationError(message, code="insufficient_balance", params=amounts)})
        return intent

    def refresh(self) -> None:
        sync.read_balances(self.account)
