"""What a merchant's code asks for and what the provider delivers, while something goes wrong.

Merchants are threads that take payments, pay out (at once and deferred) and refund, each intent under a key of its
own. After an error of the database a merchant asks again with the same key, as a merchant's code should. What was
answered, or recorded, is *acknowledged*, and so is a delivery that was answered 200.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import count, pairwise

from django.core.exceptions import ValidationError
from django.db import Error, connection, transaction

from payments_integration import services
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.models import Event, Operation, OperationState
from tests.systems.brokers.installation import Installation

DESTINATION = {
    "type": "bank_account", "bank_code": "001", "account_number": "12345678", "account_type": "checking",
    "holder_name": "Ana Rojas", "holder_document": {"type": "RUT", "number": "12345678-5"},
}  # fmt: skip
CLP = {"currency": "CLP", "country": "CL"}
FUNDS = 1_000_000_000
#: A payment is paid within this many seconds after it was made.
PAID_AFTER = 1.5
#: A merchant's pause before the next intent. Without one, two idle cores make a backlog of many minutes.
PAUSE = 0.2
DRAIN_SECONDS = 400.0
_SHOWN = 10


@dataclass(slots=True)
class Intent:
    """One thing that a merchant wants to happen once."""

    kind: str
    key: str
    #: Returns the id of the object, or "" if the intent is recorded and its outcome is open.
    ask: Callable[[], str]
    object_id: str = ""
    #: The call returned: it is answered, or recorded with its outcome open.
    acknowledged: bool = False


class Traffic:
    """It runs inside the ``with`` block, until :meth:`end` ends the merchants' part of it."""

    def __init__(self, installation: Installation, merchants: int) -> None:
        self.intents: list[Intent] = []
        #: What merchants saw, by type. Those of the database are retried.
        self.errors: Counter[str] = Counter()
        self.unexpected: list[str] = []
        #: When a merchant had something acknowledged.
        self.moments: list[float] = []
        #: What was missing when all was done, before merchants asked again.
        self.unasked: list[str] = []
        self._installation = installation
        self._engine = installation.provider.engine
        self._ended, self._stopped = threading.Event(), threading.Event()
        self._merchants = [threading.Thread(target=self._trade, args=(n,), daemon=True) for n in range(merchants)]
        self._provider = [threading.Thread(target=work, daemon=True) for work in (self._deliver, self._progress)]

    def __enter__(self) -> Traffic:
        self._engine.fund("CLP", FUNDS)
        for thread in (*self._provider, *self._merchants):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._stopped.set()
        for thread in self._provider:
            thread.join(30)

    def end(self) -> None:
        """Merchants want nothing more. The provider goes on."""
        self._ended.set()
        for thread in self._merchants:
            if thread.is_alive():
                thread.join(60)

    # the provider

    def _deliver(self) -> None:
        while not self._stopped.wait(0.05):
            self._engine.dispatcher.deliver_due(self._stopped.is_set)

    def _progress(self) -> None:
        while not self._stopped.wait(0.2):
            self._engine.tick()

    # the merchants

    def _trade(self, number: int) -> None:
        paid: deque[tuple[str, float]] = deque()
        try:
            for turn in count():
                if self._ended.wait(PAUSE):
                    return
                intent = self._intent(f"m{number}-{turn}", turn, paid)
                self.intents.append(intent)
                self._insist(intent)
                if intent.kind == "payment" and intent.object_id:
                    self._engine.process(intent.object_id)  # it succeeds a moment later
                    paid.append((intent.object_id, time.monotonic() + PAID_AFTER))
        except Exception as error:
            self.unexpected.append(f"{type(error).__name__}: {error}")
        finally:
            connection.close()

    def _intent(self, key: str, turn: int, paid: deque[tuple[str, float]]) -> Intent:
        if turn % 4 == 3 and paid and paid[0][1] < time.monotonic():
            payment_id, _ = paid.popleft()
            return Intent("refund", key, lambda: _refund(key, payment_id))
        kind, ask = (("payment", _payment), ("payout", _payout), ("payout", _deferred_payout))[turn % 3]
        return Intent(kind, key, lambda: ask(key))

    def _insist(self, intent: Intent) -> None:
        """Ask with the same key until it is acknowledged, or until the end."""
        while not self._ended.is_set():
            try:
                intent.object_id = intent.ask()
            except OutcomeUnknown:
                # It is being resolved, or the database could not say whether it is recorded.
                self.errors["OutcomeUnknown"] += 1
                return
            except ValidationError:
                # Not paid yet as far as the provider says: nothing was asked of it.
                self.errors["refused"] += 1
                time.sleep(0.3)
                continue
            except Error as error:
                self.errors[type(error).__name__] += 1
                connection.close()
                time.sleep(0.1)
                continue
            intent.acknowledged = True
            self.moments.append(time.time())
            return

    # what came of it

    def missing(self) -> list[str]:
        """What was acknowledged and the database does not have now: keys of calls, and ids of events. It may come back
        later: merchants ask again with the same key, and reconciliation reads the events again.
        """
        connection.close()  # it may lead to a server that is gone
        keys = {intent.key for intent in self.intents if intent.acknowledged}
        events = {entry["event_id"] for entry in self._engine.deliveries if entry["acknowledged"]}
        lost = keys - set(Operation.objects.values_list("idempotency_key", flat=True))
        lost |= events - set(Event.objects.values_list("pk", flat=True))
        return sorted(lost)

    def conclude(self) -> list[str]:
        """End, wait until all is done, judge, and print what was measured; what is lost or doubled."""
        self.end()
        drained = self.drain()
        self.unasked = self.missing()
        problems = self.judge()
        self.show()
        merchants, provider = self.silence()
        print(f"without a call answered      {merchants:>8.1f}  s at most")
        print(f"without a webhook answered   {provider:>8.1f}  s at most")
        print(f"drained within               {drained:>8.1f}  s after the last call")
        return problems

    def drain(self) -> float:
        """Wait until nothing is left to do, on either side; returns the seconds that it took."""
        began = time.monotonic()
        self._installation.wait("the provider and the site to be done", self._is_done, DRAIN_SECONDS)
        return time.monotonic() - began

    def _is_done(self) -> bool:
        open_there = any(
            item["status"] in ("created", "processing")
            for items in (self._engine.payouts, self._engine.refunds)
            for item in items.values()
        )
        if open_there or Event.objects.count() < len(self._engine.events):
            return False
        return not self._installation.work_left() and not self._installation.work_left()

    def judge(self) -> list[str]:
        """Every merchant repeats all calls with their keys; what is lost or doubled then, by the provider's books."""
        wrong = self._ask_again()
        self.drain()
        return wrong + self._problems()

    def _ask_again(self) -> list[str]:
        wrong: list[str] = []
        for intent in self.intents:
            try:
                object_id = intent.ask()
            except OutcomeUnknown as error:
                object_id = error.operation.result_id
            # While the outcome is unknown there is no id yet: the operation's is compared when it is resolved.
            if intent.object_id and object_id not in ("", intent.object_id):
                wrong.append(f"{intent.key} was {intent.object_id} and is {object_id}")
            intent.object_id = object_id or intent.object_id
        return wrong

    def _problems(self) -> list[str]:
        wrong = [f"a merchant stopped: {what}" for what in self.unexpected]
        operations = {row.idempotency_key: row for row in Operation.objects.all()}
        for intent in self.intents:
            row = operations.get(intent.key)
            if row is None or row.state != OperationState.DONE:
                wrong.append(f"{intent.key} is {row and row.state}: {row and row.note}")
            elif intent.object_id not in ("", row.result_id):
                wrong.append(f"{intent.key} was {intent.object_id} and is {row.result_id}")
        for kind, theirs in (
            ("payment", self._engine.payments),
            ("payout", self._engine.payouts),
            ("refund", self._engine.refunds),
        ):
            wanted = [intent.key for intent in self.intents if intent.kind == kind]
            made = [operations[key].result_id for key in wanted if key in operations]
            wrong += [f"{key} was made twice" for key, times in Counter(made).items() if times > 1]
            wrong += [f"{name} is nobody's {kind}" for name in sorted(theirs.keys() - set(made))]
            wrong += [f"{name} is not there" for name in sorted(set(made) - theirs.keys())]
        wrong += lost(self.missing())
        services.sync_balances()
        try:
            self._installation.assert_true()
        except AssertionError:
            wrong.append(f"the mirror differs: {traceback.format_exc()[-2000:]}")
        return wrong

    def silence(self, since: float = 0.0) -> tuple[float, float]:
        """The longest time in which nothing was acknowledged, and that ended after ``since``: to merchants, and to the
        provider.
        """
        last = self.moments[-1]
        deliveries = [
            datetime.fromisoformat(entry["at"]).timestamp()
            for entry in self._engine.deliveries
            if entry["acknowledged"]
        ]
        deliveries = [moment for moment in deliveries if moment <= last]
        return _longest_gap(self.moments, since), _longest_gap(deliveries, since)

    def show(self) -> None:
        kinds = Counter(intent.kind for intent in self.intents)
        deliveries = Counter(str(entry["status"] or "no answer") for entry in self._engine.deliveries)
        print(f"asked for                    {len(self.intents):>8}  {dict(kinds)}")
        print(f"merchants saw                {'':>8}  {dict(self.errors)}")
        print(f"deliveries                   {deliveries.total():>8}  {dict(deliveries)}")
        print(f"events of the provider       {len(self._engine.events):>8}")


def lost(names: list[str]) -> list[str]:
    return [f"{name} was acknowledged and is lost" for name in names]


def show_problems(problems: list[str]) -> bool:
    """Whether there is none."""
    for problem in problems[:_SHOWN]:
        print(problem)
    if len(problems) > _SHOWN:
        print(f"… and {len(problems) - _SHOWN} more")
    return not problems


def _longest_gap(moments: list[float], since: float) -> float:
    return max(after - before for before, after in pairwise(sorted(moments)) if after > since)


def _payment(key: str) -> str:
    payment = services.create_payment(
        amount=10_000, method_code="cl_webpay_card", merchant_reference=key, idempotency_key=key, **CLP
    )
    return payment.pk


def _payout(key: str) -> str:
    return services.create_payout(
        amount=5_000, method_code="cl_bank_transfer", destination=DESTINATION, merchant_reference=key,
        idempotency_key=key, **CLP,
    ).pk  # fmt: skip


def _deferred_payout(key: str) -> str:
    """Recorded with the merchant's own rows, and sent after they are committed."""
    with transaction.atomic():
        operation = services.defer(
            services.create_payout, amount=6_000, method_code="cl_bank_transfer", destination=DESTINATION,
            merchant_reference=key, idempotency_key=key, **CLP,
        )  # fmt: skip
    return operation.result_id


def _refund(key: str, payment_id: str) -> str:
    return services.create_refund(payment_id, amount=100, idempotency_key=key).pk
