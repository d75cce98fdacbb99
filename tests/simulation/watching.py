"""The provider's own history of every object, and the mirror's against it after every commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from payments_integration.enums import VAIN_PAYMENT_STATUSES
from payments_integration.models import (
    Balance,
    DepositReference,
    Event,
    ObjectDispatch,
    Operation,
    Payment,
    Payout,
    Refund,
    StatusChange,
)
from payments_integration.sandbox import Engine
from tests.factories.receivers.models import ReceiverCall

_BUCKETS = ("available", "pending", "reserve", "hold", "debt")
#: How the references of orders begin that are paid with their page's button.
ORDER = "basket-"
#: Per mirrored kind: the model, the fields that change, and the name of the id.
_SHOWN: dict[str, tuple[type[Any], tuple[str, ...], str]] = {
    "payment": (Payment, ("status", "amount_received", "refunded_amount"), "id"),
    "payout": (Payout, ("status",), "id"),
    "refund": (Refund, ("status", "payout_id"), "id"),
    "deposit_reference": (DepositReference, ("status",), "id"),
    "balance": (Balance, _BUCKETS, "currency"),
}
_QUERIES = {
    model._meta.db_table: (
        kind,
        f"SELECT {', '.join((name, *fields))} FROM {model._meta.db_table}",
    )
    for kind, (model, fields, name) in _SHOWN.items()
}
#: Payments of which more is being refunded, or may be, than was received.
_OVERDRAWN = f"""
    SELECT payment.id, payment.amount_received, SUM(operation.amount)
    FROM {Operation._meta.db_table} operation
    JOIN {Payment._meta.db_table} payment ON payment.id = operation.target_id
    LEFT JOIN {Refund._meta.db_table} refund ON refund.id = operation.result_id
    WHERE operation.operation = 'create_refund' AND operation.state IN ('due', 'unknown', 'needs_person', 'done')
      AND (refund.status IS NULL OR refund.status NOT IN ('failed', 'canceled', 'returned'))
    GROUP BY payment.id, payment.amount_received
    HAVING SUM(operation.amount) > payment.amount_received
"""
_EVENTS, _CHANGES, _CALLS, _DISPATCHES = (
    model._meta.db_table for model in (Event, StatusChange, ReceiverCall, ObjectDispatch)
)

State = tuple[Any, ...]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim on one object, as last committed: its turn in the claim, and the item in hand."""

    claim: str
    turn: int
    in_hand: str
    #: Whether its holder dispatches the object with others in one transaction.
    is_grouped: bool


@dataclass
class History:
    """The provider's states of one object, and how far the mirror has come in them."""

    states: list[State] = field(default_factory=list)
    position: int = -1
    mirrored: State | None = None
    #: When the provider came to the last of the states.
    changed_at: datetime | None = None


#: What ``Watch`` knows of the database.
_OF_DATABASE = (
    "stored_at", "applied", "dispatched", "reopened", "let_go", "_states", "_last_dispatched", "_claims", "_alone",
    "_together", "_dead_claims", "_failing", "_attempts",
)  # fmt: skip


class Watch:
    """Compares what the mirror shows with what the provider's objects have been, in their order."""

    def __init__(self, engine: Engine) -> None:
        self._project = engine.default_project.state
        self.histories: dict[Key, History] = {}
        #: Every event that the provider has ever made, also those that it has forgotten since.
        self.emitted: dict[str, datetime] = {}
        #: Event id to the place of what it brought among the states of its object.
        self._brought: dict[str, int] = {}
        #: Event id to the provider's time when it was stored here.
        self.stored_at: dict[str, datetime] = {}
        #: Event id to the moment of the commit by which it was applied, and dispatched.
        self.applied: dict[str, int] = {}
        self.dispatched: dict[str, int] = {}
        #: How often each event, or change without one, that was done is not done any more: a person replays it.
        self.reopened: Counter[str] = Counter()
        #: Events that the last commit lets be dispatched, and that were not applied, or held, before.
        self.let_go: list[str] = []
        #: Payments of an order that were made while another one of it was open or paid.
        self.doubled: list[str] = []
        self._states: dict[str, dict[Any, str]] = {_EVENTS: {}, _CHANGES: {}}
        self._moment = self._last_dispatched = 0
        self._claims: dict[Key, Claim] = {}
        #: The objects that are dispatched alone because a worker died over a group; and those of the last commit.
        self._alone: set[str] = set()
        self._together: set[str] = set()
        #: The claims whose holder's death cost an attempt.
        self._dead_claims: set[str] = set()
        #: Items whose receivers fail, until that has cost them an attempt; and how many attempts have failed.
        self._failing: set[str] = set()
        self._attempts: dict[str, int] = {}
        store = self._project.events
        announce = store._on_emit

        def emitted(event: dict[str, Any], body: bytes) -> None:
            self.emitted[event["id"]] = datetime.fromisoformat(event["created_at"])
            self._brought[event["id"]] = self._add(event["data"])
            announce(event, body)

        store._on_emit = emitted

    def inbox_changed(self, cursor: Any, tables: Iterable[str]) -> list[str]:
        """Record the order in which events are applied and dispatched: clocks may be set back meanwhile.

        Returns what receivers have done in this commit.
        """
        done: list[str] = []
        self._together = set()
        self.let_go = []
        self._moment += 1
        if _EVENTS in tables:
            now = self._project.clock.now()
            cursor.execute(f"SELECT id, state FROM {_EVENTS} WHERE state <> 'quarantined'")
            rows = cursor.fetchall()
            self._state_changed(_EVENTS, rows)
            for event_id, state in rows:
                self.stored_at.setdefault(event_id, now)
                if state != "pending":
                    self.applied.setdefault(event_id, self._moment)
        if _CHANGES in tables:
            cursor.execute(f"SELECT id, state FROM {_CHANGES} WHERE event_id IS NULL")
            self._state_changed(_CHANGES, cursor.fetchall())
        if _CALLS in tables:
            cursor.execute(
                f"SELECT id, what, object_id FROM {_CALLS} WHERE id > %s ORDER BY id", [self._last_dispatched]
            )
            for self._last_dispatched, what, object_id in cursor.fetchall():
                done.append(what)
                self._together.add(object_id)
                kind, _, rest = what.partition(":")
                if kind == "event":
                    self.dispatched.setdefault(rest.partition(":")[0], self._moment)
        return done

    def _state_changed(self, table: str, rows: Iterable[tuple[Any, str]]) -> None:
        states = self._states[table]
        for pk, state in rows:
            before, states[pk] = states.get(pk), state
            if state == before:
                continue
            if before == "done":
                self.reopened[str(pk)] += 1
            elif state == "applied" and before in ("pending", "held"):
                self.let_go.append(str(pk))

    def fails(self, item: str) -> None:
        """A receiver of this item fails now, which may cost it one attempt."""
        self._failing.add(item)

    def charged(self, cursor: Any, tables: Iterable[str]) -> list[str]:
        """The items that were charged with a failure or a death that is not theirs.

        Call it before ``claims_changed``.
        """
        wrong: list[str] = []
        for table in (_EVENTS, _CHANGES):
            if table not in tables:
                continue
            cursor.execute(
                f"SELECT id, attempts, error, object_kind, object_id FROM {table}"
                " WHERE attempts > 0 AND state IN ('applied', 'parked')"
            )
            for pk, attempts, error, *key in cursor.fetchall():
                item = str(pk)
                before, self._attempts[item] = self._attempts.get(item, 0), attempts
                if attempts == before:
                    continue
                if "the process died" not in error:
                    is_right = item in self._failing
                    self._failing.discard(item)
                else:
                    claim = self._claims.get((key[0], key[1]))
                    is_right = claim is not None and claim.in_hand == item and self._is_first(claim)
                    is_right = is_right and not (claim is not None and claim.is_grouped)
                    if claim is not None:
                        self._dead_claims.add(claim.claim)
                if attempts > before + 1 or not is_right:
                    wrong.append(f"{item}, attempt {attempts} after {before}: {error.splitlines()[-1:]}")
        return wrong

    def _is_first(self, claim: Claim) -> bool:
        """Whether the holder of this claim died over this object, and no other was charged with that death."""
        return claim.claim not in self._dead_claims and claim.turn == min(
            each.turn for each in self._claims.values() if each.claim == claim.claim
        )

    def claims_changed(self, cursor: Any, tables: Iterable[str], held: set[str]) -> tuple[set[str], list[str]]:
        """Returns the claims that are new, and the objects that are, or will be, wrongly dispatched in a group.

        ``held``: the claims of the process that has committed.
        """
        wrong: list[str] = []
        if len(self._together) > 1 and self._together & self._alone:
            wrong.append(f"{sorted(self._together & self._alone)} with {sorted(self._together - self._alone)}")
        if _DISPATCHES not in tables:
            return set(), wrong
        before, known = self.claims, self._claims
        cursor.execute(
            "SELECT object_kind, object_id, claim_token, turn, event_in_hand, change_in_hand, grouping"
            f" FROM {_DISPATCHES} WHERE claim_token <> '' OR grouping = 'alone'"
        )
        rows = cursor.fetchall()
        self._alone = {object_id for _, object_id, *_, grouping in rows if grouping == "alone"}
        self._claims = {
            (kind, object_id): Claim(claim, turn, event or str(change), grouping == "grouped")
            for kind, object_id, claim, turn, event, change, grouping in rows
            if claim
        }
        for claim in before - held:
            mine = {key: each for key, each in known.items() if each.claim == claim}
            first = min(mine, key=lambda key: mine[key].turn)
            if mine[first].is_grouped and (first not in self._claims or self._claims[first].claim != claim):
                # Its holder has died over a group.
                group = {object_id for (_, object_id), each in mine.items() if each.is_grouped}
                wrong += [f"{object_id} of claim {claim}" for object_id in sorted(group - self._alone)]
        return self.claims - before, wrong

    def in_hand(self, claims: set[str]) -> Iterator[str]:
        """The items in hand in these claims."""
        for claim in sorted(claims & self.claims):
            yield min(
                (each for each in self._claims.values() if each.claim == claim), key=lambda each: each.turn
            ).in_hand

    def restored(self, kind: str, object_id: str) -> None:
        """A backup knows nothing of this object."""
        history = self.histories[kind, object_id]
        history.position, history.mirrored = -1, None

    def backup(self) -> dict[str, Any]:
        """What is known of the database: not of the provider, and of no process."""
        shown = {key: (each.position, each.mirrored) for key, each in self.histories.items()}
        return {"shown": shown, **{name: deepcopy(vars(self)[name]) for name in _OF_DATABASE}}

    def restore(self, backup: dict[str, Any]) -> None:
        """The database is again as it was when this was taken."""
        for key, history in self.histories.items():
            history.position, history.mirrored = backup["shown"].get(key, (-1, None))
        vars(self).update({name: deepcopy(backup[name]) for name in _OF_DATABASE})

    @property
    def claims(self) -> set[str]:
        """The claims as last committed."""
        return {claim.claim for claim in self._claims.values()}

    def is_behind(self, event_id: str, instance: Any) -> bool:
        """Whether a row shows an older state than the event brought."""
        kind = instance.kind
        if event_id not in self._brought or kind == "balance":
            return False
        state = tuple(getattr(instance, name) for name in _SHOWN[kind][1])
        return state not in self.histories[kind, instance.pk].states[self._brought[event_id] :]

    def provider_acted(self) -> None:
        """Note what changed without an event."""
        project = self._project
        for items in (project.payments, project.payouts, project.refunds, project.deposit_references):
            for item in items.items:
                self._add(item)
        for balance in project.ledger.balances.values():
            self._add(balance)

    def mirror_changed(self, cursor: Any, tables: Iterable[str]) -> list[str]:
        """What of the rows in these tables the provider never had, or had before what they showed already."""
        wrong: list[str] = []
        for table in sorted(tables):
            if table not in _QUERIES:
                continue
            kind, query = _QUERIES[table]
            cursor.execute(query)
            for object_id, *values in cursor.fetchall():
                history = self.histories.setdefault((kind, object_id), History())
                state = tuple(values)
                if state == history.mirrored:
                    continue
                before, history.mirrored = history.mirrored, state
                try:
                    history.position = history.states.index(state, max(history.position, 0))
                except ValueError:
                    wrong.append(f"{kind} {object_id} shows {state} after {before}; the provider: {history.states}")
        return wrong

    def ledger_changed(self, cursor: Any, tables: Iterable[str]) -> list[str]:
        """Payments of which the ledger gives out more than came in."""
        if Operation._meta.db_table not in tables:
            return []
        cursor.execute(_OVERDRAWN)
        return [f"{given} of {received} of {pk} are on their way back" for pk, received, given in cursor.fetchall()]

    def changed_at(self, kind: str, object_id: str) -> datetime | None:
        """When the provider's object last changed, as far as the mirror shows it."""
        history = self.histories.get((kind, object_id))
        return None if history is None else history.changed_at

    def _add(self, item: dict[str, Any]) -> int:
        """Returns the place of the item's state."""
        kind = item["object"]
        _, fields, name = _SHOWN[kind]
        history = self.histories.setdefault((kind, item[name]), History())
        state = tuple(item.get(name) for name in fields)
        if not history.states and (item.get("merchant_reference") or "").startswith(ORDER):
            self._note_doubled(item)
        if not history.states or history.states[-1] != state:
            history.states.append(state)
            history.changed_at = self._project.clock.now()
        return len(history.states) - 1

    def _note_doubled(self, item: dict[str, Any]) -> None:
        """A payer may try again when no more money is expected from the attempts before."""
        for other in self._project.payments.items:
            if other.get("merchant_reference") == item["merchant_reference"] and other["id"] != item["id"]:
                statuses = {status for status, *_ in self.histories["payment", other["id"]].states}
                if not statuses & VAIN_PAYMENT_STATUSES:
                    self.doubled.append(f"{item['id']} beside {other['id']}, which has been {sorted(statuses)}")
