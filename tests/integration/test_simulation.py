"""The simulation itself: some schedules, the same ones for the same seed, and mutants that still fit the code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation import running
from tests.simulation.faults import KINDS
from tests.simulation.mutants import ROOT
from tests.simulation.network import REFUSALS, SPOILED
from tests.simulation.rules import MUTANTS, Mutant
from tests.simulation.scheduler import GO, Fault, Plan, Scheduler

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with running.scheduler() as held:
        yield held


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("seed", [1, 2])
def test_some_schedules_violate_no_invariant(seed: int) -> None:
    findings = running.run(seed, schedules=8, steps=20, shrink=0)
    assert not findings.violation, "\n".join([*findings.trace, findings.violation])
    assert findings.schedules >= 8
    assert findings.counts["passed committed"] > 100


@pytest.mark.usefixtures("scheduler")
def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (running.run(3, schedules=3, steps=15, shrink=0) for _ in range(2))
    assert first.digests == second.digests
    assert len(set(first.digests)) >= 3


def test_a_fault_of_a_post_waits_for_one() -> None:
    plan = Plan()
    plan.add([Fault("send", "drop", method="POST"), Fault("send", "late", 1)])
    taken = [plan.take("send", may_wait=True, method=method) for method in ("GET", "GET", "POST", "POST")]
    assert taken == [GO, "late", "drop", GO]


def test_every_network_fault_is_in_the_list_of_kinds() -> None:
    assert set(REFUSALS) | {"wait", "crash", "drop", "late", "twice"} == set(KINDS["send"])
    assert set(SPOILED) | {"wait", "crash", "lost", "truncate", "slow", "undated"} == set(KINDS["answer"])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_to_exactly_one_place(mutant: Mutant) -> None:
    for path, old, new in mutant.changes:
        assert (ROOT / "payments_integration" / path).read_text().count(old) == 1
        assert old != new
