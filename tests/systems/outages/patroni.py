"""Three nodes of PostgreSQL under Patroni: their leader is lost in four ways in the middle of load.

    python -m tests.systems.outages.patroni [--seconds 20] [--merchants 4] [--asynchronous]

The example project runs under gunicorn with a Celery worker and beat, and merchants take payments, pay out and refund.
All of them know the three nodes, and write to the one that accepts it. The leader is killed after two seconds in which
nothing reached the others; a switchover is asked for; the leader is cut off from etcd, but not from its clients; it is
killed while one of the others has not received the last seconds. After each, what was acknowledged is looked for, and
the cluster becomes whole again. Each node is asked all the time whether it accepts writes: never may two. At the end
the mirror is compared with the sandbox, field by field.

``--asynchronous``: the same without ``synchronous_mode``. This must fail, and says what was lost and what came back.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import combinations

import psycopg

from tests.clusters import PatroniCluster, PatroniNode, patroni
from tests.servers import Redis
from tests.systems.outages.failover import CUT_SECONDS
from tests.systems.outages.site import command, site_on, start

#: Between two looks at a node.
LOOK_SECONDS = 0.02
#: A server leaves recovery once, and ends before it is in recovery again: between two looks of one start that found it
#: out of recovery, it was so all the time. Its clock, which is that of all nodes, says when it looked.
_LOOK = "SELECT pg_is_in_recovery(), pg_postmaster_start_time()::text, extract(epoch FROM clock_timestamp())::float8"


@dataclass(slots=True)
class Reign:
    """A node accepted writes from ``first`` to ``last``, and for less than a look before and after that."""

    node: str
    first: float
    last: float


class Watch:
    """Asks each node all the time whether it accepts writes."""

    def __init__(self, nodes: list[PatroniNode]) -> None:
        self.reigns: list[Reign] = []
        self.looks = 0
        #: The longest time between two looks at a node that led.
        self.blind = 0.0
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(node,), daemon=True) for node in nodes]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)

    def _watch(self, node: PatroniNode) -> None:
        reigns: dict[str, Reign] = {}
        url = f"postgres://postgres@127.0.0.1:{node.port}/postgres?connect_timeout=2"
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                with psycopg.connect(url, autocommit=True) as connection:
                    while not self._stopped.wait(LOOK_SECONDS):
                        row = connection.execute(_LOOK).fetchone()
                        assert row is not None
                        self._note(node, reigns, *row)
            except psycopg.OperationalError:
                continue  # it is gone, or not there yet

    def _note(
        self, node: PatroniNode, reigns: dict[str, Reign], is_in_recovery: bool, started: str, now: float
    ) -> None:
        self.looks += 1
        if is_in_recovery:
            return
        if started not in reigns:
            reigns[started] = Reign(node.name, now, now)
            self.reigns.append(reigns[started])
        self.blind = max(self.blind, now - reigns[started].last)
        reigns[started].last = now

    def last(self, node: PatroniNode) -> Reign:
        """The newest reign of a node."""
        return [reign for reign in self.reigns if reign.node == node.name][-1]


def two_at_once(reigns: list[Reign]) -> list[str]:
    return [
        f"{one.node} and {other.node} accepted writes at the same time"
        for one, other in combinations(reigns, 2)
        if one.first <= other.last and other.first <= one.last
    ]


@contextmanager
def killed(leader: PatroniNode, _: PatroniCluster) -> Iterator[None]:
    leader.to_postgres.silence()
    time.sleep(CUT_SECONDS)
    leader.crash()
    yield
    leader.start()


@contextmanager
def switched_over(leader: PatroniNode, _: PatroniCluster) -> Iterator[None]:
    leader.switch_over()
    yield


@contextmanager
def cut_off(leader: PatroniNode, _: PatroniCluster) -> Iterator[None]:
    leader.to_etcd.cut()
    yield
    leader.to_etcd.mend()


@contextmanager
def killed_before_one_has_all(leader: PatroniNode, cluster: PatroniCluster) -> Iterator[None]:
    laggard = cluster.laggard(leader)
    with laggard.standing_still():
        time.sleep(CUT_SECONDS)
        if not leader.ahead_of(laggard):
            raise AssertionError(f"{laggard.name} does not lag")
        leader.crash()
        if cluster.successor(leader) is laggard:
            raise AssertionError(f"{laggard.name} lags and leads")
        yield
    leader.start()


EVENTS: dict[str, Callable[[PatroniNode, PatroniCluster], AbstractContextManager[None]]] = {
    "the leader killed": killed,
    "a switchover": switched_over,
    "the leader cut off from etcd": cut_off,
    "killed while a node lags": killed_before_one_has_all,
}


def under_load(options: argparse.Namespace) -> bool:
    with patroni(synchronous=not options.asynchronous) as cluster, Redis() as redis:
        cluster.leader().ask("CREATE DATABASE payments")
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
        url = f"postgres://postgres@{hosts}/payments?target_session_attrs=read-write&connect_timeout=5&conn_max_age=60"
        with site_on(url, redis) as installation:
            from tests.systems.outages.traffic import Traffic, lost, show_problems

            start(installation)
            forgotten: set[str] = set()
            with Watch(cluster.nodes) as watch, Traffic(installation, options.merchants) as traffic:
                time.sleep(options.seconds)
                for name, event in EVENTS.items():
                    leader = cluster.leader()
                    began = time.time()
                    with event(leader, cluster):
                        successor = cluster.successor(leader)
                        forgotten.update(traffic.missing())
                        time.sleep(options.seconds)
                    stopped, leads = watch.last(leader).last - began, watch.last(successor).first - began
                    merchants, provider = traffic.silence(since=began)
                    print(
                        f"{name:<29}{stopped:>8.1f}  s until it accepts no more writes, {leads:.1f} s until the next"
                    )
                    print(f"{'':<29}{merchants:>8.1f}  s without a call answered, {provider:.1f} s without a webhook")
                cluster.leader()
                problems = lost(sorted(forgotten)) + traffic.conclude()
                away = forgotten.intersection(traffic.unasked)
                asked_again = away.difference(traffic.missing())
            problems += two_at_once(watch.reigns)
            print(f"leaders in turn              {len(watch.reigns):>8}  {[reign.node for reign in watch.reigns]}")
            print(f"looks at the nodes           {watch.looks:>8}  at most {watch.blind:.2f} s apart at a leader")
            for what, names in (
                ("lost by failovers", forgotten),
                ("came back by themselves", forgotten - away),
                ("came back when asked again", asked_again),
            ):
                calls = sum(name.startswith("m") for name in names)
                print(f"{what:<29}{calls:>8}  calls and {len(names) - calls} events")
            return show_problems(problems)


if __name__ == "__main__":
    sys.exit(command(under_load, __doc__, ("--asynchronous", "without synchronous_mode: this must fail")))
