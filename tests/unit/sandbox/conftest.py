from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from payments_integration.sandbox import Clock, Engine, SandboxServer

from .support import Client, Receiver


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.freeze(datetime(2026, 1, 15, 12, tzinfo=UTC))
    return clock


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def engine(clock: Clock, receiver: Receiver) -> Iterator[Engine]:
    """An engine on a frozen clock. Its audit must find no errors at the end of each test."""
    engine = Engine(clock=clock, rate_limits=False, transport=receiver)
    yield engine
    assert engine.audit() == []


@pytest.fixture
def client(engine: Engine) -> Client:
    return Client(engine)


@pytest.fixture
def server(engine: Engine) -> Iterator[SandboxServer]:
    with SandboxServer(engine, deliver=False) as server:
        yield server
