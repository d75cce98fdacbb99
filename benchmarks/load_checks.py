"""After the load: what was acknowledged against what is in the database."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

_SHOWN = 10


@dataclass
class Report:
    """What was sent, and what is wrong with what came of it."""

    #: Object id to its events, oldest first.
    objects: dict[str, list[dict[str, Any]]]
    #: Objects whose events left out of order.
    shuffled: set[str]
    acknowledged: set[str]
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, wrong: list[str]) -> None:
        self.counts[name] = len(wrong)
        self.problems += [f"{name}: {what}" for what in wrong]

    def show(self) -> None:
        for name, number in self.counts.items():
            print(f"{name:29}{number:>10}")
        for problem in self.problems[:_SHOWN]:
            print(problem)
        print("nothing lost, nothing doubled" if not self.problems else f"BROKEN: {len(self.problems)} problems")


def check(report: Report) -> None:
    """Fill in the report. An event is stored once or not at all: its id is the key."""
    _check_inbox(report)
    _check_dispatch(report)
    _check_mirror(report)
    _check_changes(report)


def _check_inbox(report: Report) -> None:
    from payments_integration.models import DueRefresh, Event

    states = dict(Event.objects.values_list("pk", "state"))
    everything = {event["id"] for events in report.objects.values() for event in events}
    report.count("not acknowledged", sorted(everything - report.acknowledged))
    report.count("acknowledged and lost", sorted(report.acknowledged - states.keys()))
    report.count("stored and never sent", sorted(states.keys() - everything))
    report.count("not done", sorted(f"{pk} is {state}" for pk, state in states.items() if state != "done"))
    report.count("refreshes asked for", sorted(map(str, DueRefresh.objects.all())))


def _check_dispatch(report: Report) -> None:
    """By the rows that the shop's receivers write, one for each call."""
    from example_project.shop.models import Notice

    dispatched: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for object_id, event_id, is_stale in Notice.objects.order_by("pk").values_list(
        "object_id", "event_id", "is_stale"
    ):
        dispatched[object_id].append((event_id, is_stale))
    times = Counter(event_id for notices in dispatched.values() for event_id, _ in notices)
    report.count("acknowledged, never dispatched", sorted(report.acknowledged - times.keys()))
    report.count("dispatched twice", sorted(event_id for event_id, number in times.items() if number > 1))
    wrong: list[str] = []
    for object_id, events in report.objects.items():
        rank = {event["id"]: position for position, event in enumerate(events)}
        newest = -1
        for event_id, is_stale in dispatched[object_id]:
            # An event older than a dispatched one is stale; all others are dispatched oldest first.
            if (rank[event_id] < newest) != is_stale:
                wrong.append(f"{event_id}, stale {is_stale}")
            newest = max(newest, rank[event_id])
        if object_id not in report.shuffled and [rank[event_id] for event_id, _ in dispatched[object_id]] != sorted(
            rank.values()
        ):
            wrong.append(f"{object_id}: {dispatched[object_id]}")
    report.count("dispatched out of order", wrong)


def _check_mirror(report: Report) -> None:
    from payments_integration.models import Payment, Payout

    rows: dict[str, Any] = {**Payment.objects.in_bulk(), **Payout.objects.in_bulk()}
    wrong: list[str] = sorted(rows.keys() ^ report.objects.keys())
    for object_id, events in report.objects.items():
        row, last = rows.get(object_id), events[-1]
        if row is None:
            continue
        theirs = {name: value for name, value in last["data"].items() if name not in ("id", "object", "created_at")}
        ours = {name: getattr(row, name) for name in theirs}
        if ours != theirs or row.state_at != datetime.fromisoformat(last["created_at"]):
            wrong.append(f"{object_id}: {ours} instead of {theirs}")
    report.count("mirror rows that are wrong", wrong)


def _check_changes(report: Report) -> None:
    from payments_integration.models import StatusChange

    chains: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for change in StatusChange.objects.order_by("pk"):
        chains[change.object_id].append((change.previous_status, change.status))
    wrong: list[str] = []
    for object_id, events in report.objects.items():
        chain = chains[object_id]
        ranks = {event["data"]["status"]: position for position, event in enumerate(events)}
        ends = [("", ""), *chain, (events[-1]["data"]["status"], "")]
        is_whole = len(chain) > 0 and all(before[1] == after[0] for before, after in pairwise(ends))
        if not is_whole or any(ranks[before[1]] >= ranks[after[1]] for before, after in pairwise(chain)):
            wrong.append(f"{object_id}: {chain}")
    report.count("changes of status with a gap", wrong)
