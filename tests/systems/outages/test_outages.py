"""Each proof, small: as the make targets run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.systems.outages.patroni import Reign, two_at_once

ROOT = Path(__file__).resolve().parents[3]
#: Of a proof, on a busy machine.
PATIENCE = 600


def run(proof: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return finished(
        [sys.executable, "-W", "error", "-m", f"tests.systems.outages.{proof}", "--seconds", "4", *arguments]
    )


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.terminate()  # it stops its servers, which are sessions of their own
            out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.case(115)
@pytest.mark.promise(1)
@pytest.mark.promise(2)
def test_load_through_pgbouncer_loses_and_doubles_nothing() -> None:
    load = [sys.executable, "-W", "error", "benchmarks/load.py", "--pgbouncer", "--webhooks", "1000", "--kills", "2"]
    assert_true(finished(load))


def assert_true(proof: subprocess.CompletedProcess[str]) -> None:
    assert proof.returncode == 0, proof.stdout[-4000:] + proof.stderr[-8000:]
    assert proof.stdout.endswith("nothing lost, nothing doubled\n")


@pytest.mark.case(118)
@pytest.mark.promise(1)
@pytest.mark.promise(5)
def test_a_failover_under_load_loses_and_doubles_nothing() -> None:
    assert_true(run("failover"))


@pytest.mark.promise(1)
@pytest.mark.promise(5)
def test_a_node_of_a_cluster_that_is_killed_under_load_loses_and_doubles_nothing() -> None:
    assert_true(run("galera"))


@pytest.mark.case(118)
@pytest.mark.promise(1)
@pytest.mark.promise(5)
def test_a_cluster_that_loses_its_leader_in_four_ways_under_load_loses_and_doubles_nothing() -> None:
    assert_true(run("patroni", "--merchants", "2"))


def test_two_leaders_at_the_same_moment_are_found() -> None:
    in_turn = [Reign("node0", 0.0, 2.0), Reign("node1", 2.5, 4.0)]
    assert two_at_once(in_turn) == []
    found = two_at_once([*in_turn, Reign("node2", 3.9, 5.0)])
    assert found == ["node1 and node2 accepted writes at the same time"]


@pytest.mark.promise(4)
@pytest.mark.promise(5)
def test_a_restored_dump_sends_nothing_twice() -> None:
    assert_true(run("restore"))


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.promise(5)
def test_an_upgrade_under_load_loses_and_doubles_nothing() -> None:
    assert_true(run("upgrade"))


@pytest.mark.promise(2)
@pytest.mark.promise(5)
def test_the_app_decides_by_nothing_that_a_replica_says() -> None:
    assert_true(run("replica"))
