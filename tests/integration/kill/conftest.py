"""A site whose processes can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import time_machine

from payments_integration.testing import ProviderSandbox
from tests.integration.kill.site import Site, Warm

#: Dying over a receiver counts as its failure; none is parked for that here.
OPTIONS = {"RECEIVER_RETRIES": (1,) * 50}


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    process = Warm()
    yield process
    process.close()


@pytest.fixture
def site(warm: Warm) -> Iterator[Site]:
    with time_machine.travel(datetime.now(UTC)) as clock, ProviderSandbox(options=OPTIONS) as sandbox:
        sandbox.engine.fund("CLP", 10_000_000)
        yield Site(warm, sandbox, clock)
        assert sandbox.engine.audit() == []
