"""Shared fixtures: receivers that record their calls, and wake-ups under the test's control."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from django.core.cache import cache
from django.db import connections, transaction
from django.utils import translation

from payments_integration import attention as attention_module, signals, wakeup
from payments_integration.contrib.backoffice import handling
from payments_integration.contrib.backoffice.apps import write_terms
from payments_integration.models import Event
from payments_integration.projection import forget_contacts, forget_secrets
from payments_integration.schemas import EARLIEST
from payments_integration.signals import attention, event_received, status_changed
from payments_integration.sync import forget_keys
from tests import emptying
from tests.databases import SQLITE, depends_on_database
from tests.factories.receivers.models import ReceiverCall

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
emptying.install()

_DESELECTED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-test", action="store_true", help="on a database server run the tests of any database as well"
    )
    parser.addoption(
        "--any-database", action="store_true", help="run only the tests that use no database, or for which any will do"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a server, leave out the tests for which any database will do: ``make test`` has run them."""
    if config.getoption("any_database"):
        left_out = [item for item in items if depends_on_database(item)]
    elif SQLITE or config.getoption("every_test"):
        return
    else:
        left_out = [item for item in items if not depends_on_database(item)]
    config.stash[_DESELECTED] = len(left_out)
    if left_out:
        kept = {*items} - {*left_out}
        items[:] = [item for item in items if item in kept]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Loading thousands of tests leaves next to no garbage, and looking for it would take a sixth of that time.

    Later each look goes through them, so let it come less often.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.set_threshold(50_000, 50, 50)
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected"] = session.config.stash.get(_DESELECTED, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The processes of xdist collect the same tests each; xdist itself does not report what they leave out."""
    node.config.stash[_DESELECTED] = getattr(node, "workeroutput", {}).get("deselected", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(_DESELECTED, 0):
        why = "any database will do. --every-test runs them as well"
        if config.getoption("any_database"):
            why = "each database must run them"
        terminalreporter.write_line(f"{count} tests deselected: {why}.")


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> None:
    """Forget what another test left in this one."""
    forget_secrets()
    forget_contacts()
    forget_keys()
    cache.clear()
    translation.deactivate()


@pytest.fixture(autouse=True)
def inline_seconds(monkeypatch: pytest.MonkeyPatch) -> float:
    """The limit of "inline". Tests run without it: what they do in a request must not depend on the machine's load."""
    limit = wakeup.INLINE_SECONDS
    monkeypatch.setattr(wakeup, "INLINE_SECONDS", 60.0)
    return limit


@pytest.fixture(autouse=True)
def _no_optional_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optional apps are installed, but only their own tests connect them to the mirror, and compare orders."""
    monkeypatch.setattr(signals, "_mirror_listeners", [])
    monkeypatch.setattr(handling, "report_unpaid", lambda: None)


@pytest.fixture
def search_terms(_no_optional_apps: None) -> None:
    """The back office keeps its search terms, as it does where it is installed."""
    signals.on_mirror_written(write_terms)


@pytest.fixture(autouse=True)
def _no_receivers(request: pytest.FixtureRequest) -> Iterator[None]:
    """The example shop is installed, but only its own tests, which set its URLs, connect its receivers."""
    urls = request.node.get_closest_marker("urls")
    if urls is not None and "example_project.urls" in urls.args:
        yield
        return
    kept = [(signal, signal.receivers) for signal in (event_received, status_changed)]
    for signal, _ in kept:
        _set_receivers(signal, [])
    yield
    for signal, receivers in kept:
        _set_receivers(signal, receivers)


def _set_receivers(signal: Any, receivers: list[Any]) -> None:
    signal.receivers = receivers
    signal.sender_receivers_cache.clear()


@pytest.fixture
def woken() -> Iterator[list[str]]:
    """Wake-ups are recorded and do nothing: the test runs the flows itself."""
    accounts: list[str] = []
    previous = wakeup.set_hook(lambda account, deadline: accounts.append(account))
    yield accounts
    wakeup.set_hook(previous)


@dataclass
class Receiver:
    """The calls of merchant code, in memory and in a table that shares the transaction of the dispatch."""

    events: list[tuple[str, bool]] = field(default_factory=list)
    statuses: list[tuple[str, str]] = field(default_factory=list)
    previous: list[str] = field(default_factory=list)
    fail: Callable[[str], bool] = lambda what: False

    def on_event(self, sender: type[Any], event: Event, instance: Any, is_stale: bool, **kwargs: Any) -> None:
        ReceiverCall.objects.create(what=event.id, object_id=event.object_id)
        if self.fail(event.id):
            raise RuntimeError(f"receiver fails for {event.id}")
        self.events.append((event.id, is_stale))
        self.previous.append(kwargs["previous_status"])

    def on_status(self, sender: type[Any], instance: Any, previous_status: str, status: str, **kwargs: Any) -> None:
        ReceiverCall.objects.create(what=f"{previous_status}>{status}", object_id=instance.pk)
        if self.fail(status):
            raise RuntimeError(f"receiver fails for {status}")
        self.statuses.append((previous_status, status))

    @property
    def dispatched(self) -> list[str]:
        """Ids of events whose dispatch was committed, in order."""
        return list(ReceiverCall.objects.filter(what__startswith="evt_").order_by("pk").values_list("what", flat=True))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    event_received.connect(receiver.on_event)
    status_changed.connect(receiver.on_status)
    yield receiver
    event_received.disconnect(receiver.on_event)
    status_changed.disconnect(receiver.on_status)


@pytest.fixture
def dispatching_since(settings: Any) -> None:
    """DISPATCH_SINCE of the account "default", long ago. Without it, no event is too old for a test's handlers."""
    configured = settings.PAYMENTS_INTEGRATION
    account = {**configured["ACCOUNTS"]["default"], "DISPATCH_SINCE": EARLIEST}
    settings.PAYMENTS_INTEGRATION = {**configured, "ACCOUNTS": {**configured["ACCOUNTS"], "default": account}}


@pytest.fixture
def attention_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction of a test is never committed: ``attention`` is sent within it."""

    def on_commit(send: Callable[[], None], using: str, **options: Any) -> None:
        blocks: list[Any] = connections[using].atomic_blocks
        if blocks and blocks[0]._from_testcase:
            send()
        else:
            transaction.on_commit(send, using=using, **options)

    monkeypatch.setattr(attention_module, "transaction", SimpleNamespace(on_commit=on_commit))


@pytest.fixture
def attentions(attention_at_once: None) -> Iterator[list[dict[str, Any]]]:
    """What ``attention`` was sent with."""
    seen: list[dict[str, Any]] = []

    def note(**kwargs: Any) -> None:
        seen.append(kwargs)

    attention.connect(note)
    yield seen
    attention.disconnect(note)
