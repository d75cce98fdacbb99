"""Shared fixtures: receivers that note what they are told, and wake-ups under the test's control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from payments_integration import wakeup
from payments_integration.models import Event
from payments_integration.projection.endpoints import forget_secrets
from payments_integration.signals import attention, event_received, status_changed
from tests.receivers.models import Told


@pytest.fixture(autouse=True)
def _fresh_secrets() -> None:
    forget_secrets()


@pytest.fixture(autouse=True)
def _no_receivers(request: pytest.FixtureRequest) -> Iterator[None]:
    """The example's shop is installed; only its own tests, which name its URLs, have it told."""
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
    """Wake-ups are noted and do nothing: the test runs the flows itself."""
    accounts: list[str] = []
    previous = wakeup.set_hook(lambda account, deadline: accounts.append(account))
    yield accounts
    wakeup.set_hook(previous)


@dataclass
class Receiver:
    """What merchant code was told, in memory and in a table that shares the telling's transaction."""

    events: list[tuple[str, bool]] = field(default_factory=list)
    statuses: list[tuple[str, str]] = field(default_factory=list)
    previous: list[str] = field(default_factory=list)
    fail: Callable[[str], bool] = lambda what: False

    def on_event(self, sender: type[Any], event: Event, instance: Any, is_stale: bool, **kwargs: Any) -> None:
        Told.objects.create(what=event.id, object_id=event.object_id)
        if self.fail(event.id):
            raise RuntimeError(f"receiver fails for {event.id}")
        self.events.append((event.id, is_stale))
        self.previous.append(kwargs["previous_status"])

    def on_status(self, sender: type[Any], instance: Any, previous_status: str, status: str, **kwargs: Any) -> None:
        Told.objects.create(what=f"{previous_status}>{status}", object_id=instance.pk)
        if self.fail(status):
            raise RuntimeError(f"receiver fails for {status}")
        self.statuses.append((previous_status, status))

    @property
    def told(self) -> list[str]:
        """Ids of events whose telling committed, in order."""
        return list(Told.objects.filter(what__startswith="evt_").order_by("pk").values_list("what", flat=True))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    event_received.connect(receiver.on_event)
    status_changed.connect(receiver.on_status)
    yield receiver
    event_received.disconnect(receiver.on_event)
    status_changed.disconnect(receiver.on_status)


@pytest.fixture
def attentions() -> Iterator[list[dict[str, Any]]]:
    """What called for a person."""
    seen: list[dict[str, Any]] = []

    def note(**kwargs: Any) -> None:
        seen.append(kwargs)

    attention.connect(note)
    yield seen
    attention.disconnect(note)
