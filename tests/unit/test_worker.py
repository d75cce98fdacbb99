"""``"PROCESSING": "worker"``: who is told of work, how it is found, and that nothing needs Celery."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import OperationalError, ProgrammingError, connection

from payments_integration import inbox, reconciliation, services, telemetry, wakeup
from payments_integration.db import notifications
from payments_integration.management.worker import Worker, require_two_connections, stopped_by_signals
from payments_integration.models import AccountState, Event, OperationState
from payments_integration.reconciliation import objects
from payments_integration.runtime import stopping
from payments_integration.signatures import HEADER, sign
from payments_integration.testing import ProviderSandbox
from payments_integration.wakeup import _on_wake, _publisher
from tests import factories
from tests.conftest import Receiver
from tests.factories import rows

pytestmark = pytest.mark.slow


class Shop:
    """The project's own wake-up."""

    def __init__(self) -> None:
        self.woken: list[str] = []

    def wake_up(self, account: str) -> None:
        self.woken.append(account)
        if account == "second":
            raise SystemExit("the queue is in a bad state")


@pytest.fixture
def shop(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    shop, module = Shop(), ModuleType("shop_queue")
    vars(module)["wake_up"] = shop.wake_up
    monkeypatch.setitem(sys.modules, "shop_queue", module)
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "PROCESSING": "worker", "WAKE_UP": "shop_queue.wake_up"
    }  # fmt: skip
    previous = wakeup.set_hook(_on_wake)
    yield shop
    _publisher.flush()
    wakeup.set_hook(previous)


@pytest.mark.parametrize(
    ("pool", "is_enough"),
    [(True, True), ({}, True), ({"max_size": 2}, True), ({"max_size": 1}, False), ({"min_size": 1}, False)],
    ids=str,
)
def test_a_pool_of_one_connection_is_too_small(
    monkeypatch: pytest.MonkeyPatch, pool: bool | dict[str, int], is_enough: bool
) -> None:
    """The thread with the schedule would wait for the other one's connection, and never reconcile."""
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": pool})
    with nullcontext() if is_enough else pytest.raises(CommandError, match="max_size"):
        require_two_connections()


@pytest.mark.django_db(transaction=True)
def test_with_a_worker_the_request_only_stores_and_the_project_is_told(shop: Shop, client: Any) -> None:
    body = factories.body(factories.life()[0])
    response = client.post(
        "/payments/webhook/", body, content_type="application/json", headers={HEADER: sign(body, "whsec_default")}
    )
    assert response.status_code == 200
    _publisher.flush(30)
    assert shop.woken == ["default"]
    assert Event.objects.get().state == "pending", "the job applies it"


@pytest.mark.django_db(transaction=True)
def test_a_wake_up_that_fails_is_logged_and_observed(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    facts: list[telemetry.Fact] = []
    observer = SimpleNamespace(happened=facts.append, begun=lambda activity: None, traceparent=lambda: "")
    telemetry.observe(observer)  # type: ignore[arg-type]
    try:
        wakeup.wake("second")
        _publisher.flush(30)
        wakeup.wake("default")
        _publisher.flush(30)
    finally:
        telemetry.forget(observer)  # type: ignore[arg-type]
    assert shop.woken == ["second", "default"], "the thread goes on"
    assert "The wake-up for account second failed; the scheduled sweeper will find the work" in caplog.text
    assert [fact.account for fact in facts if isinstance(fact, telemetry.WakeUpFailed)] == ["second"]


@pytest.mark.django_db(transaction=True)
def test_a_wake_up_that_only_makes_a_coroutine_has_failed(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """As a task of taskiq does, which no check takes for async."""

    async def process_events(account: str) -> None: ...

    def wake_up(account: str) -> Any:
        return process_events(account)

    vars(sys.modules["shop_queue"])["wake_up"] = wake_up
    wakeup.wake("default")
    _publisher.flush(30)
    assert "The wake-up for account default failed" in caplog.text
    assert "nothing awaits it" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_the_project_is_told_even_if_the_database_cannot_be_notified(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(using: str) -> bool:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(notifications, "can_notify", lost)
    wakeup.wake("default")
    _publisher.flush(30)
    assert shop.woken == ["default"]


@pytest.mark.django_db
def test_waiting_work_names_accounts_and_kinds_with_one_statement(
    django_assert_num_queries: Any, receiver: Receiver, woken: list[str]
) -> None:
    with django_assert_num_queries(1):
        assert reconciliation.waiting_work() == set()
    inbox.receive("default", factories.body(factories.life()[0]))
    assert reconciliation.waiting_work() == {("default", "apply")}
    inbox.process()
    assert reconciliation.waiting_work() == {("default", "dispatch")}
    inbox.dispatch()
    rows.operation(account="second", state=OperationState.DUE)
    with django_assert_num_queries(1):
        assert reconciliation.waiting_work() == {("second", "operation")}


@pytest.fixture
def asked_to_stop() -> Iterator[None]:
    stopping.request()
    yield
    stopping.clear()


@pytest.mark.django_db
@pytest.mark.usefixtures("asked_to_stop", "woken")
def test_a_process_that_is_asked_to_stop_begins_nothing(receiver: Receiver) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    assert reconciliation.run_due("default") == []
    assert inbox.process() == 0
    assert Event.objects.get().state == "pending"
    stopping.clear()
    inbox.process()
    stopping.request()
    assert inbox.dispatch() == 0
    assert not receiver.events
    assert reconciliation.waiting_work() == {("default", "dispatch")}, "its claims are free"


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_a_full_resync_that_is_asked_to_stop_stays_due(
    payments_sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its repair returns early, and must not pass for complete."""
    monkeypatch.setattr(objects, "_repair", lambda *args, **options: stopping.request())
    try:
        run = reconciliation.reconcile_objects("default", full=True)
        assert run.error.startswith("DeadlinePassed:")
        state = AccountState.objects.get(pk="default")
        assert (state.resync_list, state.sweep_claim_token) == ("read", ""), "the next process continues at once"
        assert state.swept_at is None
    finally:
        stopping.clear()
        monkeypatch.undo()
    run = reconciliation.reconcile_objects("default", full=True)
    assert (run.error, bool(run.resumed)) == ("", True)
    assert AccountState.objects.get(pk="default").swept_at is not None


@pytest.mark.usefixtures("asked_to_stop")
def test_a_sleep_ends_when_the_process_is_asked_to_stop() -> None:
    stopping.sleep(3600)


WITHOUT_CELERY = """
import sys
from pathlib import Path
for name in ("celery", "kombu"):
    sys.modules[name] = None  # importing it fails
from django.conf import settings
urls = sys.modules["shop_urls"] = type(sys)("shop_urls")
settings.configure(
    SECRET_KEY="x" * 50, ROOT_URLCONF="shop_urls", ALLOWED_HOSTS=["*"], USE_TZ=True,
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework", "payments_integration"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1] + "/db.sqlite3",
                           "OPTIONS": {"transaction_mode": "IMMEDIATE"}}},
    PAYMENTS_INTEGRATION={"PROCESSING": "worker", "ACCOUNTS": {"default": {
        "BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_x", "WEBHOOK_SECRETS": ["whsec_default"]}}},
)
import django
django.setup()
from django.urls import include, path
urls.urlpatterns = [path("payments/", include("payments_integration.urls"))]
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
call_command("check", fail_level="WARNING")
call_command("migrate", verbosity=0)
body = Path(sys.argv[1], "body").read_bytes()
answer = Client().post(reverse("payments_integration:webhook"), body, content_type="application/json",
                       headers={"Service-Signature": sys.argv[2]})
assert answer.status_code == 200, answer
try:
    call_command("payments_process")
except CommandError as error:
    assert error.returncode == 4, error  # there is no provider
from payments_integration.models import Event
print(Event.objects.get().state)
"""


def test_without_celery_the_app_starts_checks_and_works_from_cron(tmp_path: Path) -> None:
    body = factories.body(factories.life()[0])
    (tmp_path / "body").write_bytes(body)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_CELERY, str(tmp_path), sign(body, "whsec_default")],
        check=False, capture_output=True, text=True, env={**os.environ, "DJANGO_SETTINGS_MODULE": ""},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "done"


@pytest.mark.parametrize(("does_something", "passes"), [(True, 10), (False, 1)])
def test_work_that_a_pass_leaves_is_put_off_and_new_work_is_not(
    does_something: bool, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without notifications every look under load finds work, new or left."""
    worker = Worker(["default"], is_every_account=True, poll_seconds=0.0)
    done: list[str] = []

    def process_due(account: str, **_: Any) -> bool:
        done.append(account)
        worker._counts.applied += does_something
        return False

    monkeypatch.setattr(reconciliation, "process_due", process_due)
    monkeypatch.setattr(reconciliation, "waiting_work", lambda: {("default", "apply")})
    monkeypatch.setattr(worker, "_listens", False)
    monkeypatch.setattr("payments_integration.management.worker._FIRST_PAUSE", 60.0)
    for _ in range(10):
        worker._turn()
    assert len(done) == passes


def test_after_a_pass_that_failed_the_worker_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a session that a handler has changed, such as its search_path, would fail every later pass."""
    worker, closed = Worker(["default"], is_every_account=True, poll_seconds=0.0), []

    def process_due(account: str, **_: Any) -> bool:
        raise ProgrammingError('relation "payments_integration_event" does not exist')

    monkeypatch.setattr(reconciliation, "process_due", process_due)
    monkeypatch.setattr(reconciliation, "waiting_work", lambda: {("default", "apply")})
    monkeypatch.setattr(worker, "_listens", False)
    monkeypatch.setattr("payments_integration.management.worker.discard_all", lambda: closed.append(True))
    worker._turn()
    assert closed == [True]


def test_outside_the_main_thread_nothing_stays_asked_to_stop() -> None:
    def run() -> None:
        with stopped_by_signals():
            stopping.request()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not stopping.is_requested()


def test_the_time_of_a_turn_is_for_operations_too(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    asked: list[float] = []

    def resume_operations(account: str | None, *, deadline: float) -> dict[str, int]:
        asked.append(deadline - time.monotonic())
        return {}

    monkeypatch.setattr(services, "resume_operations", resume_operations)
    reconciliation.process_due("default", turn_seconds=2.0)
    assert len(asked) == 1
    assert asked[0] <= 2.0
