from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from payments_integration import projection, signals, wakeup
from payments_integration.models import Operation
from payments_integration.projection import Snapshot
from payments_integration.services import calls, lookups, reads, sending

from . import fakes


@pytest.fixture
def woken() -> Iterator[list[str]]:
    """The accounts that were woken. Nobody gets up."""
    accounts: list[str] = []
    previous = wakeup.set_hook(lambda account, deadline: accounts.append(account))
    yield accounts
    wakeup.set_hook(previous)


@pytest.fixture
def fake(db: None, woken: list[str], monkeypatch: pytest.MonkeyPatch) -> fakes.Fake:
    """The provider of every account."""
    provider = fakes.Fake()
    for module in (calls, lookups, reads, sending):
        monkeypatch.setattr(module, "get_client", lambda account="default": provider)
    return provider


@pytest.fixture
def mirrored(fake: fakes.Fake) -> Any:
    """Put an object of the provider into the mirror, as a GET would have."""

    def mirror(resource: Any, *, account: str = "default", known: bool = True) -> Any:
        if known:
            fake.add(resource)
        return projection.write_answer(
            account, resource, answered_at=resource.created_at, duration=0.0, before=Snapshot(None, 0)
        )

    return mirror


@pytest.fixture
def attention() -> Iterator[list[str]]:
    """The reasons that ``attention`` was sent for."""
    reasons: list[str] = []

    def receive(reason: str, **_: Any) -> None:
        reasons.append(reason)

    signals.attention.connect(receive)
    yield reasons
    signals.attention.disconnect(receive)


def only() -> Operation:
    return Operation.objects.get()


def make_due(operation: Operation | None = None) -> None:
    """Let time pass until operations are due."""
    rows = Operation.objects.all() if operation is None else Operation.objects.filter(pk=operation.pk)
    rows.update(next_attempt_at=None, lease_until=None)
