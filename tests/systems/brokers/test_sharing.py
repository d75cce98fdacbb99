"""One, two and four workers end with the same rows and share the work; a queue of its own keeps an account's apart."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from http.client import HTTPConnection
from typing import Any

import pytest
from django.db.models import Model, QuerySet

from example_project.shop.models import Notice
from payments_integration import inbox
from payments_integration.models import Event, EventSource, Payment, StatusChange
from payments_integration.testing import signed_delivery
from tests import factories
from tests.factories.receivers.models import ReceiverCall
from tests.systems.brokers.conftest import APART
from tests.systems.brokers.installation import Installation
from tests.systems.brokers.processes import Process

ACCOUNTS = {
    alias: {"BASE_URL": "http://127.0.0.1:9", "API_KEY": f"sk_test_{alias}", "WEBHOOK_SECRETS": [f"whsec_{alias}"]}
    for alias in ("default", "second")
}
#: Of each account, and so small a batch that there are many more batches than workers.
PAYMENTS = 8
BATCH = 2


@pytest.mark.promise(2)
@pytest.mark.promise(3)
@pytest.mark.promise(6)
def test_one_two_and_four_workers_end_the_same_and_share_the_work(installation: Installation) -> None:
    """All workers are in the middle of a batch at the same time, and later in a receiver at the same time."""
    installation.changes["PAYMENTS"] = {"ACCOUNTS": ACCOUNTS, "BATCH_SIZE": BATCH}
    installation.beat(process_events=0.2)
    workers: list[Process] = []
    ends = []
    for count in (1, 2, 4):
        workers += [installation.worker(concurrency=1, ready=False) for _ in range(count - len(workers))]
        for worker in workers:
            installation.wait_ready(worker)
        ends.append(backlog(installation, workers))
    one, two, four = ends
    assert one == two == four


def backlog(installation: Installation, workers: list[Process]) -> list[Any]:
    """Have these workers do a backlog together; all that it ends in, without the parts that name the backlog."""
    mark = f"_by_{len(workers)}_"
    lives = {
        alias: [payment_events(f"pay{mark}{alias}_{number}", gate=f"dispatch{mark}") for number in range(PAYMENTS)]
        for alias in ACCOUNTS
    }
    # Each payment's first event, then its last: what is in between comes late, and all of it twice.
    installation.hold_batches(f"batch{mark}")
    for alias, events in lives.items():
        store(alias, (life[0] for life in events))
    share(installation, f"batch{mark}", workers)
    for alias, events in lives.items():
        store(alias, (life[-1] for life in events))
    share(installation, f"dispatch{mark}", workers)
    for alias, events in lives.items():
        store(alias, (event for life in events for event in life[1:-1]))
        store(alias, (event for life in events for event in life))
    installation.wait_settled()

    wanted = {life[0]["data"]["id"]: [event["id"] for event in life] for events in lives.values() for life in events}
    assert dispatched(mark) == {payment: [ids[0], ids[-1], *ids[1:-1]] for payment, ids in wanted.items()}
    assert set(rows(Payment, mark).values_list("status", flat=True)) == {"succeeded"}
    return everything(mark)


def payment_events(payment_id: str, *, gate: str) -> list[dict[str, Any]]:
    steps: list[tuple[float, dict[str, Any]]] = [
        (0, {"status": "created"}),
        (10, {"status": "requires_action"}),
        (20, {"status": "processing"}),
        (30, {"status": "succeeded", "amount_received": 10000, "fee": 300, "net_amount": 9700}),
    ]
    return [
        factories.event(
            factories.payment(id=payment_id, metadata={"gate": gate}, **fields), seconds=factories.RECENT + seconds
        )
        for seconds, fields in steps
    ]


def store(account: str, events: Iterable[dict[str, Any]]) -> None:
    inbox.receive_many(account, map(factories.body, events), source=EventSource.WEBHOOK)


def share(installation: Installation, gate: str, workers: list[Process]) -> None:
    """Everybody is at the gate, each with work of its own; then they may go on, until nothing is left."""
    children = {child: worker.pid for worker in workers for child in worker.children()}

    def there() -> set[int]:
        return {children[pid] for pid in installation.entered(gate)}

    installation.wait(f"{len(workers)} workers at the gate {gate}", lambda: len(there()) == len(workers))
    installation.open(gate)
    installation.wait_settled()


def rows(model: type[Model], mark: str) -> QuerySet[Any]:
    return model._default_manager.filter(**{"pk__contains" if model is Payment else "object_id__contains": mark})


def dispatched(mark: str) -> dict[str, list[str]]:
    """The events of each object in the order of their dispatch."""
    order = defaultdict(list)
    for object_id, event_id in rows(Notice, mark).order_by("pk").values_list("object_id", "event_id"):
        order[object_id].append(event_id)
    return dict(order)


def everything(mark: str) -> list[Any]:
    """Every column of the mirror, of the changes and of the inbox, and what the receivers wrote; not our clock's."""
    ours = {"synced_at", "received_at", "recorded_at"}
    found: list[Any] = [sorted(dispatched(mark).items())]
    for model, order in ((Payment, "id"), (Event, "id"), (StatusChange, "event_id"), (ReceiverCall, "object_id")):
        for row in rows(model, mark).order_by(order).values():
            if "dispatched_at" in row:
                row["dispatched_at"] = row["dispatched_at"] is not None
            if model is not Payment and model is not Event:
                del row["id"]  # the database counts
            # Its bytes and their hash hold the mark.
            row.pop("body", None)
            row.pop("content_hash", None)
            found.append([model.__name__, {name: row[name] for name in row if name not in ours}])
    assert len(found) == 1 + len(ACCOUNTS) * PAYMENTS * (1 + 4 + 2 + 1)
    plain: list[Any] = json.loads(json.dumps(found, default=str).replace(mark, "_"))
    return plain


@pytest.mark.promise(6)
def test_a_backlog_of_one_account_does_not_delay_anothers(installation: Installation) -> None:
    """Neither wake-ups nor the schedule bring a worker of the others to it, though each of both has one process."""
    installation.changes |= {"PAYMENTS": {"ACCOUNTS": ACCOUNTS}, "QUEUES": {"second": APART}}
    installation.site()
    apart, others = (installation.worker("--queues", queue, concurrency=1, ready=False) for queue in (APART, "celery"))
    installation.beat(process_events=0.3)
    for worker in (apart, others):
        installation.wait_ready(worker)
    for number in range(3):
        deliver(installation, "second", payment_events(f"pay_backlog_{number}", gate="backlog")[-1])
    (child,) = installation.wait_entered("backlog")
    assert child in apart.children()

    for number in range(3):  # one after the other: none is dispatched in passing
        deliver(installation, "default", payment_events(f"pay_quick_{number}", gate="")[-1])
        quick = ReceiverCall.objects.filter(object_id=f"pay_quick_{number}")
        installation.wait(f"payment {number} of the other account to be dispatched", quick.exists, seconds=20)
        swept = others.count(r"process_events\[\S+\] succeeded")
        installation.wait(
            "the others' worker to look again",
            lambda known=swept: others.count(r"process_events\[\S+\] succeeded") > known,
        )
    assert installation.entered("backlog") == [child]
    assert not ReceiverCall.objects.filter(object_id__startswith="pay_backlog").exists()

    installation.open("backlog")
    installation.wait_settled()
    assert set(installation.entered("backlog")) == {child}
    assert ReceiverCall.objects.count() == 6


def deliver(installation: Installation, account: str, event: dict[str, Any]) -> None:
    request = signed_delivery(event, f"whsec_{account}")
    headers = {"Content-Type": request["content_type"], **request["headers"]}
    connection = HTTPConnection("127.0.0.1", installation.site_port, timeout=20)
    connection.request("POST", f"/payments/webhook/{account}/", request["data"], headers)
    assert connection.getresponse().status == 200
    connection.close()
