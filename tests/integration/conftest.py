"""What the tests of flows share; a module may define its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import time_machine

from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox


@pytest.fixture
def sandbox(payments_sandbox: ProviderSandbox, woken: list[str]) -> ProviderSandbox:
    """A provider whose deliveries never arrive."""
    payments_sandbox.engine.faults.add(Fault("drop", times=None))
    return payments_sandbox


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    """Time for us and for the provider."""
    with time_machine.travel(datetime.now(UTC)) as clock:
        yield clock


@pytest.fixture
def still() -> Iterator[None]:
    """No time passes, for us and for the provider, however slow the machine."""
    with time_machine.travel(datetime.now(UTC), tick=False):
        yield
