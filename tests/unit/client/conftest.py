from __future__ import annotations

from collections.abc import Iterator

import pytest
import responses

from payments_integration import conf
from payments_integration.client import Client
from tests.unit.client.samples import API_KEY


class Clock:
    """A monotonic clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(clock: Clock) -> Client:
    account = conf.Account("default", "https://pay.example", API_KEY)
    return Client(account, sleep=clock.sleep, monotonic=clock)


@pytest.fixture
def provider() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        yield mock
