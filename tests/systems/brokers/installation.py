"""A merchant's whole installation: a site under gunicorn, workers, beat, a broker, a database, and the provider."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from kombu import Connection

from example_project.shop.models import Notice
from payments_integration import services
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    DueRefresh,
    Event,
    EventState,
    Operation,
    Payment,
    StatusChange,
)
from payments_integration.signals import dispatching
from payments_integration.testing import ProviderSandbox
from tests import settings as test_settings
from tests.factories.receivers.models import ReceiverCall
from tests.integration.mirror import assert_mirror_equals_provider
from tests.servers import Server, free_port, listens
from tests.systems.brokers.merchant.payment_handlers import BATCHES, GATES
from tests.systems.brokers.processes import PATIENCE, Process, Processes, python

ROOT = Path(__file__).resolve().parents[3]
API_KEY = "sk_test_sandbox"
#: The provider waits ten seconds; a broker must not cost more than this of them.
ANSWER_WITHIN = 8.0
#: Our tasks are acknowledged early with any project default. A project can override that like this.
ACKS_LATE = {"CELERY_TASK_ANNOTATIONS": {"*": {"acks_late": True}}}
#: A process that is killed may leave a claim, and the longest, of a read, ends after 90 s.
SETTLED_WITHIN = 90 + PATIENCE


@dataclass
class Installation:
    """``changes``: settings of the site, the workers and beat that differ from the example project's."""

    folder: Path
    broker: Server
    database_url: str
    site_port: int = field(default_factory=free_port)
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.processes = Processes(self.folder)
        #: Where the processes find the broker.
        self.broker_url = self.broker.url
        self.provider = ProviderSandbox(webhook_url=f"http://127.0.0.1:{self.site_port}/payments/webhook/")
        self.wait = self.processes.wait
        self._supervised: list[Process] = []

    # processes

    def environ(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": "tests.systems.brokers.settings",
            "DEBUG": "false",
            "SECRET_KEY": test_settings.SECRET_KEY,
            "ALLOWED_HOSTS": "127.0.0.1",
            "DATABASE_URL": self.database_url,
            "BROKER_URL": self.broker_url,
            "PAYMENTS_BASE_URL": self.provider.url,
            "PAYMENTS_API_KEY": API_KEY,
            "PAYMENTS_WEBHOOK_SECRETS": self.provider.webhook_secret,
            "PAYMENTS_PROCESSING": "celery",
            "SHOP_SANDBOX_URL": "",
            "TEST_CHANGES": json.dumps(self.changes),
            GATES: str(self.folder),
            **more,
        }

    def site(self) -> Process:
        process = self.processes.start(
            "site",
            python(
                *("gunicorn", "--workers", "1", "--threads", "8", "--graceful-timeout", "5", "--no-control-socket"),
                *("--bind", f"127.0.0.1:{self.site_port}", "example_project.wsgi"),
            ),
            self.environ(),
        )
        self.wait("the site to answer", self._site_answers)
        return process

    def _site_answers(self) -> bool:
        """Whether it has loaded the project, and does not only listen."""
        if not listens(self.site_port):
            return False
        connection = HTTPConnection("127.0.0.1", self.site_port, timeout=PATIENCE)
        with closing(connection):
            connection.request("GET", "/payments/webhook/")
            return connection.getresponse().status == 405

    def worker(self, *arguments: str, ready: bool = True, concurrency: int = 2, **environ: str) -> Process:
        process = self.processes.start(
            "worker",
            python(
                *("celery", "-A", "example_project", "worker", "--pool", "prefork"),
                *("--concurrency", str(concurrency), "--loglevel", "INFO"),
                *("--hostname", f"w{len(self.processes.all)}@test", *arguments),
            ),
            self.environ(**environ),
        )
        if ready:
            self.wait_ready(process)
        return process

    def supervise(self, worker: Process) -> None:
        """Another one takes its place whenever it ends.

        Celery's worker ends itself ("Unrecoverable error", in kombu) where Redis goes away while it has a message in
        hand that no process of its pool has begun.
        """
        self._supervised.append(worker)

    def _replace_dead(self) -> None:
        dead = [worker for worker in self._supervised if not worker.is_running]
        for worker in dead:
            assert worker.count("Unrecoverable error"), worker.output()
            self._supervised.remove(worker)
            self._supervised.append(self.worker())

    def wait_ready(self, worker: Process) -> None:
        self.wait("the worker to be ready", lambda: worker.count(r"@test ready\."))

    def beat(self, *arguments: str, **every: float) -> Process:
        """``process_events=0.5``: the entries of the schedule that run, and every how many seconds."""
        process = self.processes.start(
            "beat",
            python(
                *("celery", "-A", "example_project", "beat", "--loglevel", "INFO", "--max-interval", "1"),
                *("--pidfile", "", "--schedule", str(self.folder / f"beat-{len(self.processes.all)}")),
                *arguments,
            ),
            self.environ(
                TEST_SCHEDULE=",".join(every),
                **{f"SCHEDULE_{name.upper()}": str(seconds) for name, seconds in every.items()},
            ),
        )
        self.wait("beat to begin", lambda: process.count("beat: Starting"))
        return process

    def close(self) -> None:
        self.processes.stop()

    # what happens

    def payment(self, *, gate: str = "", amount: int = 10_000) -> Payment:
        """A payment that the merchant has created and that is not paid."""
        return services.create_payment(
            amount=amount, currency="CLP", country="CL", method_code="cl_webpay_card",
            metadata={"gate": gate} if gate else {},
        )  # fmt: skip

    def paid(self, *, gate: str = "") -> Payment:
        """A payment that was paid; the provider has not delivered that yet."""
        payment = self.payment(gate=gate)
        self.provider.engine.pay(payment.pk)
        return payment

    def payout(self, amount: int = 5_000) -> Operation:
        """A payout that a receiver has asked for: recorded, and sent by the next worker that looks."""
        with transaction.atomic(), dispatching():
            return services.defer(
                services.create_payout, amount=amount, currency="CLP", country="CL", method_code="cl_bank_transfer",
                destination={
                    "type": "bank_account", "bank_code": "001", "account_number": "12345678",
                    "account_type": "checking", "holder_name": "Ana Rojas",
                    "holder_document": {"type": "RUT", "number": "12345678-5"},
                },
            )  # fmt: skip

    def deliver(self) -> list[int]:
        """Have the provider post what is due; the statuses that it was answered, each in time."""
        before = len(self.provider.engine.dispatcher.log)
        while True:
            began = time.monotonic()
            log = self.provider.engine.dispatcher.log
            known = len(log)
            if not self._deliver_one():
                break
            assert time.monotonic() - began < ANSWER_WITHIN, f"an answer took {time.monotonic() - began:.1f} s"
            assert len(log) > known
        return [attempt["status"] for attempt in self.provider.engine.dispatcher.log[before:]]

    def _deliver_one(self) -> int:
        sent: list[int] = []
        return self.provider.engine.dispatcher.deliver_due(lambda: bool(sent) or sent.append(1) is not None)

    # gates, at which receivers stand still

    def entered(self, gate: str) -> list[int]:
        """The processes that came to the gate, one entry each time."""
        path = self.folder / f"{gate}.entered"
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def wait_entered(self, gate: str, times: int = 1, seconds: float = PATIENCE) -> list[int]:
        self.wait(f"gate {gate} to be entered {times} times", lambda: len(self.entered(gate)) >= times, seconds)
        return self.entered(gate)

    def hold_batches(self, gate: str) -> None:
        """From now on a process that applies events of new payments waits at this gate, in the middle of a batch."""
        (self.folder / BATCHES).write_text(gate)

    def open(self, gate: str) -> None:
        (self.folder / f"{gate}.open").touch()

    # how it stands

    def work_left(self) -> list[str]:
        unfinished: tuple[QuerySet[Any], ...] = (
            Event.objects.filter(state__in=(EventState.PENDING, EventState.APPLIED, EventState.HELD)),
            StatusChange.objects.filter(state=EventState.APPLIED),
            DueRefresh.objects.all(),
            Operation.objects.filter(state__in=OPEN_OPERATION_STATES),
        )
        return [f"{rows.model.__name__} {values}" for rows in unfinished for values in rows.values()]

    def wait_settled(self, seconds: float = SETTLED_WITHIN) -> None:
        def twice() -> bool:
            self._replace_dead()
            # One look is several queries, and work moves from one table to the next.
            return not self.work_left() and not self.work_left()

        try:
            self.wait("nothing to be left to do", twice, seconds)
        except AssertionError as error:
            error.add_note("\n".join(self.work_left()))
            raise

    def assert_true(self) -> None:
        """Nothing lost, nothing doubled, all in order, by the provider's books."""
        assert self.work_left() == []
        assert self.provider.engine.audit() == []
        assert_mirror_equals_provider(self.provider)
        theirs = {event["id"]: event for event in self.provider.engine.events}
        ours = {event.pk: event for event in Event.objects.all()}
        assert ours.keys() == theirs.keys()
        assert {event.state for event in ours.values()} <= {EventState.DONE}
        dispatched = list(Notice.objects.order_by("pk").values_list("object_id", "event_id", "is_stale"))
        assert sorted(event_id for _, event_id, _ in dispatched) == sorted(theirs), "each event is dispatched once"
        for object_id in {object_id for object_id, _, _ in dispatched}:
            newest = datetime.min.replace(tzinfo=UTC)
            for event_id, is_stale in [(event_id, stale) for of, event_id, stale in dispatched if of == object_id]:
                moment = ours[event_id].created_at
                # One that was found late comes after newer ones, and says so.
                assert moment <= newest if is_stale else moment >= newest, f"{object_id} was dispatched out of order"
                newest = max(newest, moment)
            changes = list(StatusChange.objects.filter(object_id=object_id).order_by("pk"))
            assert all(one.status == next_.previous_status for one, next_ in pairwise(changes)), changes
        succeeded = {item["id"] for item in self.provider.engine.payments.values() if item["status"] == "succeeded"}
        handled = list(ReceiverCall.objects.values_list("object_id", flat=True))
        assert len(handled) == len(set(handled)), "a handler ran twice"
        # A payment that was refunded since has another status.
        assert succeeded <= set(handled) <= {item["id"] for item in self.provider.engine.payments.values()}


def queue_length(url: str) -> int:
    """How many messages wait in the queue; 0 where there is none."""
    with Connection(url) as connection:
        try:
            return int(connection.default_channel.queue_declare("celery", passive=True).message_count)
        except connection.channel_errors:
            return 0
