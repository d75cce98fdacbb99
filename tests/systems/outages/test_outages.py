"""Each proof, small: as the make targets run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import galera
from tests.systems.outages.galera import WAITS
from tests.systems.outages.patroni import Reign, two_at_once

ROOT = Path(__file__).resolve().parents[3]
#: Of a proof, on a busy machine.
PATIENCE = 600


def run(proof: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return finished(
        [sys.executable, "-W", "error", "-m", f"tests.systems.outages.{proof}", "--seconds", "4", *arguments]
    )


def finished(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes, **options) as process:
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


def test_a_node_whose_reads_do_not_wait_for_other_nodes_is_refused() -> None:
    with galera(1) as [node]:
        node.ask("CREATE DATABASE payments")
        for url, is_refused in ((node.url, True), (node.url + WAITS, False)):
            site = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
            migrated = finished([sys.executable, "manage.py", "migrate", "--verbosity", "0"], env=site)
            assert ("payments_integration.E025" in migrated.stderr) is is_refused, migrated.stderr
            assert bool(migrated.returncode) is is_refused, migrated.stderr


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
