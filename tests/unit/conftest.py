"""A fake provider for the whole app, objects of it in the mirror, and what called for attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from payments_integration import projection, signals
from payments_integration.outbox import approvals, look_ups, recovery, repeats, resolution, sending, submission
from payments_integration.projection import Snapshot
from payments_integration.services import reads
from payments_integration.sync import project_keys, reading
from tests.fake_provider import Fake


@pytest.fixture
def fake(db: None, woken: list[str], monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The provider of every account. No wake-up runs anything."""
    provider = Fake()
    for module in (
        submission,
        approvals,
        recovery,
        repeats,
        look_ups,
        resolution,
        project_keys,
        reading,
        sending,
        reads,
    ):
        monkeypatch.setattr(module, "get_client", lambda account="default": provider)
    return provider


@pytest.fixture
def mirrored(fake: Fake) -> Callable[..., Any]:
    """Put an object of the provider into the mirror, as a GET would have; returns its row."""

    def mirror(resource: Any, *, account: str = "default", known: bool = True) -> Any:
        if known:
            fake.add(resource)
        return projection.write_answer(
            account, resource, answered_at=resource.created_at, duration=0.0, before=Snapshot(None, 0)
        )

    return mirror


@pytest.fixture
def attention(attention_at_once: None) -> Iterator[list[str]]:
    """The reasons that ``attention`` was sent for."""
    reasons: list[str] = []

    def receive(reason: str, **_: Any) -> None:
        reasons.append(reason)

    signals.attention.connect(receive)
    yield reasons
    signals.attention.disconnect(receive)
