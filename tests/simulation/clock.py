"""Simulated time and chance: the same seed gives the same run, byte for byte."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import time_machine

from payments_integration.client import Client
from payments_integration.client.requestor import Requestor
from payments_integration.outbox import outcomes, sending
from payments_integration.sandbox import Clock

START = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
_MONOTONIC_START = 1000.0


class Time:
    """True time, which is the provider's; the merchant's machines may be off by ``skew``."""

    def __init__(self, begins_at: datetime = START) -> None:
        self.now = begins_at
        self.skew = timedelta()
        self._traveller: Any = None

    def monotonic(self) -> float:
        return _MONOTONIC_START + (self.now - START).total_seconds()

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self._move()

    def set_skew(self, seconds: float) -> None:
        """Set the merchant's clocks: so far ahead of the truth."""
        self.skew = timedelta(seconds=seconds)
        self._move()

    def travel(self, stack: ExitStack) -> None:
        self._traveller = stack.enter_context(time_machine.travel(self.now + self.skew, tick=False))

    def _move(self) -> None:
        self._traveller.move_to(self.now + self.skew)


class ProviderClock(Clock):
    """The sandbox's clock shows true time."""

    def __init__(self, truth: Time) -> None:
        super().__init__()
        self._truth = truth

    def _now(self) -> datetime:
        last: datetime | None = self._last_stamp
        return self._truth.now if last is None or last < self._truth.now else last


def simulated(truth: Time, sleep: Callable[[float], None], seed: int) -> ExitStack:
    """Time and chance as simulated until the stack is closed. ``sleep(seconds)`` stands for ``time.sleep``."""
    stack = ExitStack()
    truth.travel(stack)
    chance = random.Random(seed)
    state = random.getstate()
    stack.callback(random.setstate, state)
    random.seed(seed)
    stack.enter_context(mock.patch.object(time, "monotonic", truth.monotonic))
    stack.enter_context(mock.patch.object(time, "sleep", sleep))
    stack.enter_context(mock.patch.object(os, "urandom", chance.randbytes))
    stack.enter_context(mock.patch.object(random, "_urandom", chance.randbytes))
    # Bound when the modules were imported.
    for function in (Client.__init__, Requestor.__init__):
        defaults: dict[str, Any] = {"sleep": sleep, "monotonic": truth.monotonic}
        stack.enter_context(mock.patch.object(function, "__kwdefaults__", defaults))
    claim = outcomes.Claim

    def claimed(operation: Any, token: str, earlier_may_have_run: bool) -> outcomes.Claim:
        return claim(operation, token, earlier_may_have_run, since=truth.monotonic())

    for module in (outcomes, sending):
        stack.enter_context(mock.patch.object(module, "Claim", claimed))
    return stack
