"""What the busiest flows cost in round trips to PostgreSQL, each packet of which waits half a millisecond.

    python benchmarks/round_trips.py [--events 400] [--json FILE]

Starts PostgreSQL and a stub of the provider, and puts a proxy between the app and PostgreSQL, as if that were on
another host: each packet waits for ``DELAY``, in both directions. A round trip begins where the
app sends something after it got something; BEGIN, COMMIT and the handler's own statement count. Each flow runs in a
process and a database of its own. Exits 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import handlers
from benchmarks.deliveries import deliveries
from benchmarks.figures import Figure, report
from benchmarks.measuring import SPAN_SECONDS, Work, configure, site
from example_project.demo.processes import raise_on_signals

#: Seconds that each packet waits.
DELAY = 0.0005
#: Events of a page of the provider's list.
PAGE = 100
#: The most round trips of each flow. A group of declared handlers ends after 20 ms, so a slow machine makes more.
LIMITS = {
    "delivery": 1.0,
    "event with a handler": 6.0,
    "event with a declared handler": None,
    "page of a catch-up": 20.0,
}


class Proxy:
    """Passes on what comes, later, and counts round trips."""

    def __init__(self, port: int) -> None:
        self.trips = 0
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _address = self._server.accept()
            database = socket.create_connection(("127.0.0.1", self._port))
            asks = threading.Event()
            for side in (client, database):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._ask, args=(client, database, asks), daemon=True).start()
            threading.Thread(target=self._answer, args=(database, client, asks), daemon=True).start()

    def _ask(self, client: socket.socket, database: socket.socket, asks: threading.Event) -> None:
        # A side may end its connection at any time.
        with suppress(OSError):
            while received := client.recv(1 << 20):
                if not asks.is_set():
                    asks.set()
                    self.trips += 1
                time.sleep(DELAY)
                database.sendall(received)
        with suppress(OSError):
            database.shutdown(socket.SHUT_WR)

    def _answer(self, database: socket.socket, client: socket.socket, asks: threading.Event) -> None:
        with suppress(OSError):
            while received := database.recv(1 << 20):
                asks.clear()
                time.sleep(DELAY)
                client.sendall(received)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)


# The flows. Each prepares itself, and returns what is measured and how many items it works off.


def delivery(work: Work) -> tuple[Callable[[], object], int]:
    from payments_integration import inbox

    bodies = [body for _, body in deliveries(work.items + 1, repeated=0.0, seed="round trips")]
    inbox.receive("default", bodies[0])
    return lambda: [inbox.receive("default", body) for body in bodies[1:]], work.items


def event_with_handler(work: Work, *, database_only: bool = False) -> tuple[Callable[[], object], int]:
    from payments_integration import inbox

    handlers.store(work)
    handlers.connect(handlers.Counts(), lambda event: None, database_only=database_only)
    inbox.process()
    return inbox.dispatch, work.items


def event_with_declared_handler(work: Work) -> tuple[Callable[[], object], int]:
    return event_with_handler(work, database_only=True)


def page_of_catch_up(work: Work) -> tuple[Callable[[], object], int]:
    from django.utils import timezone

    from payments_integration import reconciliation

    since = timezone.now() - timedelta(seconds=SPAN_SECONDS + 3600)
    return lambda: reconciliation.reconcile_events(since=since), work.items // PAGE


FLOWS = dict(zip(LIMITS, (delivery, event_with_handler, event_with_declared_handler, page_of_catch_up), strict=True))


def run(flow: str, work: Work) -> None:
    """Print round trips and milliseconds of an item. Runs in a new process."""
    server, _, rest = work.database.rpartition("/")
    host, _, port = server.rpartition(":")
    proxy = Proxy(int(port))
    configure(replace(work, database=f"{host}:{proxy.port}/{rest}"))
    measured, items = FLOWS[flow](work)
    before, began = proxy.trips, time.perf_counter()
    measured()
    print(json.dumps([(proxy.trips - before) / items, (time.perf_counter() - began) / items * 1000]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--contender", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        flow, work = options.contender
        run(flow, Work(**json.loads(work)))
        return 0
    raise_on_signals()
    found: list[Figure] = []
    with site(options.events) as here:
        for flow, most in LIMITS.items():
            with here.database("measured") as work:
                trips, milliseconds = json.loads(here.run("benchmarks.round_trips", flow, work))
            found.append(Figure(f"{flow}, round trips", trips, most, "less"))
            print(f"{flow:32}{trips:>8.2f} round trips{milliseconds:>10.1f} ms", flush=True)
    return report(found, options.json)


if __name__ == "__main__":
    sys.exit(main())
