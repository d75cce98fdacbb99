"""The tasks and their schedule. Each task runs for every account or for one."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from celery import Celery, Task
from celery.worker.consumer import Consumer
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from kombu.exceptions import OperationalError

from payments_integration import inbox, services, tasks
from payments_integration.admin.flows import reconcile
from payments_integration.db import reconnecting
from payments_integration.exceptions import OutcomeUnknown, TransactionRefused
from payments_integration.models import Event, EventState, ReconciliationRun
from payments_integration.reconciliation import due
from payments_integration.schedule import BEAT_SCHEDULE, beat_schedule, route_by_account
from payments_integration.testing import ProviderSandbox
from payments_integration.wakeup import _on_wake, _publisher
from tests import factories
from tests.conftest import Receiver
from tests.factories import rows
from tests.fake_provider import PAYOUT, Fake, Lost, make_due, timeout

PUBLIC = ("process_events", "reconcile_events", "reconcile_objects", "resume_operations", "sync_balances", "prune")


def test_the_schedule_names_every_task_and_no_other() -> None:
    assert {entry["task"] for entry in BEAT_SCHEDULE.values()} == {f"payments_integration.tasks.{n}" for n in PUBLIC}
    for entry in BEAT_SCHEDULE.values():
        name = entry["task"].rpartition(".")[2]
        assert getattr(tasks, name).name == entry["task"]
        assert entry["schedule"] > 0


@pytest.mark.parametrize(
    ("request_", "drops"),
    [
        ({"called_directly": False, "is_eager": False}, True),
        ({"called_directly": False, "is_eager": True}, False),
        ({"called_directly": True}, False),
    ],
)
@pytest.mark.parametrize("name", PUBLIC)
def test_a_worker_drops_broken_connections_before_a_task(name: str, request_: dict[str, bool], drops: bool) -> None:
    """Not if a task runs in the caller's thread, whose connection may have an open transaction."""
    task = getattr(tasks, name)
    task.push_request(**request_)
    try:
        with (
            mock.patch.object(tasks, "drop_broken_connections") as drop,
            mock.patch.multiple(tasks, conf=mock.DEFAULT, reconciliation=mock.DEFAULT, services=mock.DEFAULT),
        ):
            task.run("default")
    finally:
        task.pop_request()
    assert drop.called is drops


@pytest.mark.parametrize(
    ("pool", "fails", "stays_open"),
    [
        ("default", False, True),
        ("default", True, False),
        ("gevent", False, False),
        ("gevent", True, False),
        ("eventlet", False, False),
        ("eventlet", True, False),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_greenlet_and_a_task_that_failed_leave_no_connection_open(pool: str, fails: bool, stays_open: bool) -> None:
    """With CELERY_DB_REUSE_MAX Celery leaves it open.

    No later greenlet uses it: in the end the server is full. And a session that a handler has changed, such as its
    search_path, would fail every later task of a process.
    """
    found: list[bool] = []

    def work(account: str | None) -> None:
        connections["default"].ensure_connection()
        if fails:
            transaction.atomic().__enter__()
            raise RuntimeError("the work fails")

    def greenlet() -> None:
        task = tasks.sync_balances
        task.push_request(called_directly=False, is_eager=False)
        try:
            with suppress(RuntimeError):
                task.run("default")
        finally:
            task.pop_request()
            found.append(connections["default"].connection is not None or connections["default"].in_atomic_block)
            connections.close_all()

    with (
        mock.patch.object(tasks, "detect_environment", return_value=pool),
        mock.patch.object(tasks.reconciliation, "reconcile_balances", side_effect=work),
    ):
        thread = threading.Thread(target=greenlet)
        thread.start()
        thread.join(30)
    assert found == [stays_open]


@pytest.mark.django_db(transaction=True)
def test_a_block_that_an_earlier_task_left_open_stops_no_later_one(
    payments_sandbox: ProviderSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """As a generator that stops inside it does. Celery closes the connection after each task, which ends no block."""
    errors: list[BaseException] = []

    def worker_process() -> None:
        transaction.atomic().__enter__()
        Event.objects.exists()
        connections["default"].close()
        tasks.sync_balances.push_request(called_directly=False, is_eager=False)
        try:
            tasks.sync_balances.run("default")
        except BaseException as error:
            errors.append(error)
        finally:
            tasks.sync_balances.pop_request()
            connections.close_all()

    thread = threading.Thread(target=worker_process)
    thread.start()
    thread.join(30)
    assert not errors
    assert ReconciliationRun.objects.get().state == "done"
    assert "has left a transaction open on the database default" in caplog.text, "what it wrote is lost"


@pytest.mark.parametrize("name", ["reconcile_events", "reconcile_objects", "sync_balances"])
def test_an_error_of_one_account_leaves_no_later_one_without_its_pass(name: str) -> None:
    work = {"sync_balances": "reconcile_balances"}.get(name, name)
    with (
        mock.patch.object(tasks.reconciliation, work, side_effect=[MemoryError, None]) as passes,
        pytest.raises(MemoryError),
    ):
        getattr(tasks, name)()
    assert [call.args for call in passes.call_args_list] == [("default",), ("second",)]


class Killed(BaseException):
    """As gevent's GreenletExit."""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", PUBLIC)
def test_a_task_inside_a_transaction_says_so(name: str) -> None:
    with transaction.atomic(), pytest.raises(TransactionRefused, match=rf"{name} commits step by step.*on_commit"):
        getattr(tasks, name)("default")


@pytest.mark.parametrize("name", PUBLIC)
def test_a_task_class_of_the_project_does_not_apply(name: str) -> None:
    """As celery-singleton's: a message that expired left its lock, and no later one was published."""

    class Once(Task):  # type: ignore[type-arg]
        def apply_async(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("an earlier message holds the lock")

    app = Celery("a project", broker="memory://", task_cls=Once, set_as_current=False)
    task = app.tasks[f"payments_integration.tasks.{name}"]
    assert not isinstance(task, Once)
    assert task.app is app
    assert task.apply_async(kwargs={"account": "default"}).id


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, Killed])
def test_an_interruption_ends_the_passes_of_all_accounts(error: type[BaseException]) -> None:
    with (
        mock.patch.object(tasks.reconciliation, "reconcile_events", side_effect=error) as passes,
        pytest.raises(error),
    ):
        tasks.reconcile_events()
    assert passes.call_count == 1


def test_scheduled_messages_expire() -> None:
    """A worker that was down finds few messages, and none expires because clocks differ or a queue is long."""
    for entry in BEAT_SCHEDULE.values():
        assert entry["options"]["expires"] >= max(entry["schedule"], 900)
        assert entry["options"]["expires"] <= 30 * entry["schedule"]


@pytest.mark.parametrize("name", PUBLIC)
def test_messages_expire_also_if_a_stored_schedule_drops_that(name: str) -> None:
    task = getattr(tasks, name)
    assert task.expires == BEAT_SCHEDULE[f"payments_integration.{name}"]["options"]["expires"]


def test_beat_schedule_has_every_task_for_each_account() -> None:
    apart = beat_schedule({"default": {}, "big": {}})
    assert len(apart) == 2 * len(BEAT_SCHEDULE)
    for name, entry in BEAT_SCHEDULE.items():
        for account in ("default", "big"):
            assert apart[f"{name}.{account}"] == {**entry, "kwargs": {"account": account}}
    apart["payments_integration.prune.big"]["options"]["queue"] = "night"
    assert beat_schedule(["big"])["payments_integration.prune.big"]["options"] == {"expires": 86400.0}
    assert "queue" not in BEAT_SCHEDULE["payments_integration.prune"]["options"]
    with pytest.raises(TypeError, match=r"takes a list of aliases: \['br'\]"):
        beat_schedule("br")


@pytest.mark.parametrize("name", PUBLIC)
def test_tasks_of_an_account_go_to_its_queue(name: str) -> None:
    """Celery asks the router, and then the project's own routes."""
    app = Celery("a project", broker="memory://", set_as_current=False)
    app.conf.task_routes = [
        route_by_account({"big": "payments-big"}),
        {"payments_integration.tasks.*": {"queue": "payments"}},
    ]

    def queue(task: str, *args: Any, **kwargs: Any) -> str:
        found: str = app.amqp.router.route({}, task, args, kwargs)["queue"].name
        return found

    ours = f"payments_integration.tasks.{name}"
    assert queue(ours, account="big") == queue(ours, "big") == "payments-big"
    assert queue(ours, account="default") == queue(ours) == queue(ours, account=None) == "payments"
    assert queue("shop.tasks.report", account="big") == queue("shop.tasks.report", ["big"]) == "celery"


def test_wake_ups_and_scheduled_messages_are_routed_by_account() -> None:
    """A message without an account would wait behind the work of other accounts."""
    route = route_by_account({"big": "payments-big"})
    with mock.patch.object(tasks.process_events, "apply_async") as published:
        tasks.wake_up("big")
    wake_up = (tasks.process_events.name, published.call_args.args, published.call_args.kwargs["kwargs"])
    scheduled = [(entry["task"], entry.get("args", ()), entry["kwargs"]) for entry in beat_schedule(["big"]).values()]
    assert len(scheduled) == len(PUBLIC)
    for name, args, kwargs in [wake_up, *scheduled]:
        assert route(name, args, kwargs, {}, task=None) == {"queue": "payments-big"}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_default_rate_limit_of_the_project_holds_no_message_back(name: str) -> None:
    """Held back, messages expire: under load a worker would discard all of them, and nothing would be processed."""
    app = Celery("a project", broker="memory://", set_as_current=False)
    app.conf.task_default_rate_limit = "20/m"
    app.finalize()
    task = app.tasks[f"payments_integration.tasks.{name}"]
    assert Consumer.bucket_for_task(mock.Mock(), task) is None


def test_the_schedule_is_importable_from_settings() -> None:
    """It imports no models, no Celery and no configured settings."""
    code = (
        "import sys; from payments_integration.schedule import BEAT_SCHEDULE; assert BEAT_SCHEDULE;"
        "bad = {m.split('.')[0] for m in sys.modules} & {'celery', 'django', 'rest_framework'}; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.django_db
@pytest.mark.parametrize("account", [None, "default"])
@pytest.mark.parametrize("name", PUBLIC)
def test_every_task_runs_with_and_without_an_account(
    name: str, account: str | None, payments_sandbox: ProviderSandbox, settings: Any, woken: list[str]
) -> None:
    only = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": only}}
    task = getattr(tasks, name)
    task() if account is None else task(account=account)
    assert not ReconciliationRun.objects.exclude(state="done").exists()


@pytest.mark.django_db
def test_a_message_of_the_admin_has_the_lists_compared(
    payments_sandbox: ProviderSandbox, settings: Any, woken: list[str]
) -> None:
    """As "Run now" publishes it. The sweep is not due."""
    only = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": only}}
    payments_sandbox.project.state.payments.create(
        {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
    )
    tasks.reconcile_objects()
    task, message = reconcile._message("default", "objects")
    for arguments, seen in (({"account": "default"}, 0), (message, 1)):
        task.apply(kwargs=arguments, throw=True)
        assert ReconciliationRun.objects.latest("pk").seen == seen


@pytest.mark.django_db
def test_process_events_does_all_that_is_due(receiver: Receiver, woken: list[str]) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    tasks.process_events()
    assert Event.objects.get().state == "done"
    assert len(receiver.events) == 1


@pytest.fixture
def slow(receiver: Receiver, woken: list[str], monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """Each event takes its receiver a second, and nothing else takes any time. A payment's five events wait."""
    now = [1000.0]

    def takes_a_second(what: str) -> bool:
        now[0] += what.startswith("evt_")
        return False

    for event in factories.life():
        inbox.receive("default", factories.body(event))
    receiver.fail = takes_a_second
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(tasks, "TURN_SECONDS", 1.5)
    return receiver


@pytest.mark.django_db
@pytest.mark.parametrize("account", [None, "default"])
def test_a_long_backlog_takes_turns(account: str | None, slow: Receiver) -> None:
    """What a turn leaves goes behind the messages that wait already, and a turn that leaves nothing is the last."""
    with mock.patch.object(tasks.process_events, "apply_async") as published:
        for done in (2, 4):
            tasks.process_events(account)
            published.assert_called_once_with(kwargs={"account": account}, retry=False, expires=60)
            published.reset_mock()
            assert len(slow.events) == done
        tasks.process_events(account)
        published.assert_not_called()
    assert [event_id for event_id, is_stale in slow.events] == [event["id"] for event in factories.life()]


@pytest.mark.django_db
def test_without_a_broker_the_rest_is_done_at_once(slow: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    with mock.patch.object(tasks.process_events, "apply_async", side_effect=OperationalError("refused")):
        tasks.process_events()
    assert len(slow.events) == len(factories.life())
    assert [record.levelname for record in caplog.records if record.name == tasks.__name__] == ["WARNING"]


@pytest.mark.django_db
def test_an_eager_task_takes_no_turns(slow: Receiver) -> None:
    """Each would run inside the one before it, until a handler fails with a RecursionError."""
    with mock.patch.object(tasks.process_events, "apply_async") as published:
        tasks.process_events.apply(throw=True)
        published.assert_not_called()
    assert len(slow.events) == len(factories.life())


@pytest.mark.django_db
def test_a_turn_that_is_too_short_for_anything_is_longer(slow: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow database must not mean that every turn ends before its first event."""
    monkeypatch.setattr(tasks, "TURN_SECONDS", 0.0)
    with mock.patch.object(tasks.process_events, "apply_async") as published:
        tasks.process_events()
    published.assert_not_called()
    assert len(slow.events) == len(factories.life())


@pytest.mark.django_db
def test_with_inline_processing_the_request_processes_the_event(receiver: Receiver) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    _on_wake("default", None)
    assert len(receiver.events) == 1


def test_with_celery_processing_a_message_is_published(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "PROCESSING": "celery"}
    with mock.patch.object(tasks.process_events, "apply_async") as published:
        _on_wake("default", None)
        _publisher.flush()
    published.assert_called_once_with(kwargs={"account": "default"}, retry=False, expires=60)


@pytest.mark.django_db
def test_in_a_test_with_eager_tasks_a_wake_up_works_in_the_thread_of_the_test(
    settings: Any, receiver: Receiver
) -> None:
    """Another thread does not see the test's transaction, and locks SQLite's database in memory at random."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "PROCESSING": "celery"}
    inbox.receive("default", factories.body(factories.life()[0]))
    celery = tasks.process_events.app
    celery.conf.task_always_eager = True
    try:
        _on_wake("default", None)
    finally:
        celery.conf.task_always_eager = False
    assert len(receiver.events) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("leaves_block", [True, False])
def test_the_publisher_keeps_no_connection_that_the_project_opens_when_it_publishes(
    settings: Any, monkeypatch: pytest.MonkeyPatch, leaves_block: bool
) -> None:
    """Otherwise no wake-up of this process would get through after a restart of the database server.

    A pool gets back what is in order: it would open another one for every wake-up.
    """
    ended: list[Any] = []
    monkeypatch.setattr(reconnecting, "end_session", lambda each: (ended.append(each), each.close()))
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "PROCESSING": "celery"}
    opened: list[Any] = []

    def published(**options: Any) -> None:
        """As a task class of the project, or a receiver of ``before_task_publish``, that writes to the database."""
        connection = connections["default"]
        connection.ensure_connection()
        if leaves_block:
            transaction.atomic().__enter__()
        opened.append(connection)

    with mock.patch.object(tasks.process_events, "apply_async", side_effect=published):
        _on_wake("default", None)
        _publisher.flush(30)
    (connection,) = opened
    assert connection is not connections["default"]
    assert connection.connection is None
    assert not connection.in_atomic_block
    assert ended == opened * leaves_block


@pytest.mark.django_db
def test_a_pass_dispatches_at_once_what_was_held_for_too_long() -> None:
    event = rows.event(state=EventState.HELD, received_at=timezone.now() - timedelta(hours=2))
    tasks.process_events("default")
    event.refresh_from_db()
    assert event.state == EventState.DONE


@pytest.mark.django_db
def test_a_pass_without_work_takes_five_looks_at_most() -> None:
    tasks.process_events("default")
    with mock.patch.object(due, "pass_ended", mock.MagicMock()), CaptureQueriesContext(connection) as queries:
        tasks.process_events("default")
    assert len([query for query in queries if query["sql"].startswith("SELECT")]) <= 5


@pytest.mark.django_db
def test_a_pass_reads_what_its_operations_ask_for(fake: Fake) -> None:
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_payout(**PAYOUT)
    make_due()
    counts = Counter[str]()
    due.process_due("default", done=counts)
    assert (counts["operations"], counts["read"]) == (1, 1)
