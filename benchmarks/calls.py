"""What a service call costs beside its one HTTP request: CPU of our process and of PostgreSQL, and statements.

    python benchmarks/calls.py [--calls 600] [--profile 25] [--json FILE]

Starts a PostgreSQL of its own and, in a process of its own, a stub that answers POST /v1/payments. Takes turns of
fifty: ``services.create_payment``, and the same request by a bare ``requests.Session``, which is the floor. Exits 1
beyond a limit. Wake-ups go nowhere: what they set off is the inbox's work. ``--profile``: where our CPU time goes, by
cProfile.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import json
import pstats
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.figures import Figure, report  # noqa: E402
from benchmarks.machine import StockPostgres, cpu_seconds, family  # noqa: E402

#: Without the transactions' own BEGIN and COMMIT.
MOST_STATEMENTS = 8
#: CPU of our process for a call, to that for the bare request.
MOST_CPU = 9.0
ROUND = 50
WARM_UP = 100

PAYER = {"name": "Ana Rojas", "email": "ana@example.com", "document": {"type": "RUT", "number": "12345678-5"}}
CALL: dict[str, Any] = {
    "amount": 10_000,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_webpay_card",
    "payer": PAYER,
    "return_url": "https://shop.example/orders/1",
    "metadata": {"cart": "1"},
}
_TRANSACTION = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")


# The provider


def stub() -> None:
    """Answer POST /v1/payments for ever, each connection in a thread; prints the port."""
    numbers = itertools.count(1)
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _address = server.accept()
        threading.Thread(target=_serve, args=(connection, numbers), daemon=True).start()


def _serve(connection: socket.socket, numbers: Iterator[int]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A caller may end without closing its connection.
    with suppress(ConnectionError), connection, connection.makefile("rb") as stream:
        while request := stream.readline():
            length = 0
            for line in iter(stream.readline, b"\r\n"):
                name, _colon, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            # Before its first call, the app asks for the balances, for the provider's clock.
            asked = json.loads(stream.read(length) or b"{}")
            asked.pop("return_url", None)
            number = f"{next(numbers):012d}"
            body = json.dumps(
                {"object": "list", "data": [], "has_more": False}
                if request.startswith(b"GET")
                else {
                    "id": f"pay_{number}",
                    "object": "payment",
                    "status": "created",
                    "amount_received": 0,
                    "method_family": "card",
                    "checkout_url": f"https://checkout.example/{number}",
                    "created_at": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}Z",
                    **asked,
                }
            ).encode()
            headers = (
                f"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                f"Date: {formatdate(usegmt=True)}\r\nX-Request-Id: req_{number}\r\n\r\n"
            )
            connection.sendall(headers.encode() + body)


@contextmanager
def provider() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, __file__, "--stub"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# What is measured


def set_up(postgres: StockPostgres, url: str) -> None:
    """Django with the app and its tables."""
    import django
    import psycopg
    from django.conf import settings
    from django.core.management import call_command

    server, _, name = postgres.url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    settings.configure(
        SECRET_KEY="a-key-for-this-measurement-only",
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "payments_integration"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": name,
                "USER": "postgres",
                "HOST": "127.0.0.1",
                "PORT": str(postgres.port),
                "CONN_MAX_AGE": None,
            }
        },
        USE_TZ=True,
        PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": {"BASE_URL": url, "API_KEY": "sk_test_x"}}},
    )
    django.setup()
    call_command("migrate", verbosity=0)


def service_call(number: int) -> None:
    from payments_integration import services

    services.create_payment(**CALL, merchant_reference=f"order-{number}", idempotency_key=f"order-{number}")


def bare_request(url: str) -> Callable[[int], None]:
    """The same request, and its answer read, without any of this app."""
    import requests

    session = requests.Session()
    session.trust_env = False
    session.headers["Authorization"] = "Bearer sk_test_x"

    def call(number: int) -> None:
        body = json.dumps({**CALL, "flow": "hosted", "merchant_reference": f"order-{number}"}).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"bare-{number}"}
        answer = session.post(f"{url}/v1/payments", data=body, headers=headers, timeout=(5, 20))
        answer.raise_for_status()
        answer.json()

    return call


def statements(number: int) -> tuple[int, int]:
    """Of one call: those that do something, and those that only begin and end transactions."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        service_call(number)
    kinds = [str(query["sql"]).split(maxsplit=1)[0] for query in captured.captured_queries]
    control = sum(kind in _TRANSACTION for kind in kinds)
    return len(kinds) - control, control


def timed(call: Callable[[int], None], numbers: Iterator[int]) -> float:
    """Seconds of our CPU for a round."""
    began = time.process_time()
    for number in itertools.islice(numbers, ROUND):
        call(number)
    return time.process_time() - began


def profiled(numbers: Iterator[int], most: int) -> None:
    # Of CPU: the waiting for PostgreSQL and for the stub is theirs.
    profile = cProfile.Profile(time.thread_time)
    profile.enable()
    for number in itertools.islice(numbers, 200):
        service_call(number)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(most)
    pstats.Stats(profile).sort_stats("cumtime").print_stats(r"payments_integration", most)


def run(options: argparse.Namespace) -> list[Figure]:
    with ExitStack() as stack:
        postgres = stack.enter_context(StockPostgres())
        url = stack.enter_context(provider())
        set_up(postgres, url)
        from payments_integration import wakeup

        wakeup.set_hook(None)
        bare = bare_request(url)
        numbers = itertools.count(1)
        for number in itertools.islice(numbers, WARM_UP):
            service_call(number)
            bare(number)
        does, controls = statements(next(numbers))
        rounds = max(1, options.calls // ROUND)
        ours = floor = server = 0.0
        for _ in range(rounds):
            before = cpu_seconds(family(postgres.pid))
            ours += timed(service_call, numbers)
            server += cpu_seconds(family(postgres.pid)) - before
            floor += timed(bare, numbers)
        per_call = 1000 / (rounds * ROUND)
        ours, floor, server = ours * per_call, floor * per_call, server * per_call
        if options.profile:
            profiled(numbers, options.profile)
    print(f"create_payment, {rounds * ROUND} calls in turns with the bare request; {controls} BEGIN and COMMIT each")
    print(f"CPU of a call                   {ours:>8.2f} ms")
    print(f"CPU of the bare request         {floor:>8.2f} ms")
    print(f"CPU of PostgreSQL               {server:>8.2f} ms")
    return [
        Figure("create_payment, statements", does, MOST_STATEMENTS, "less"),
        Figure("create_payment, CPU", ours / floor, MOST_CPU, "less", "of its request"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=600)
    parser.add_argument("--profile", type=int, default=0, help="show so many functions")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--stub", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stub:
        stub()
    return report(run(options), options.json)


if __name__ == "__main__":
    sys.exit(main())
