"""Sends deliveries over connections that are kept, and reports how fast they were acknowledged.

    python -m benchmarks.sender URL FILE [--connections 8] [--rate 25] [--header Service-Signature]

FILE has one JSON text of a line, ``[id, body]``. Everything is signed with BENCH_WEBHOOK_SECRET and written out before
the clock starts. Without a rate each connection sends its next delivery when the last one is acknowledged. With one,
deliveries are due at fixed times, and waiting for a free connection counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
import time
from collections import Counter, deque
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from payments_integration.signatures import HEADER, sign


class Sending:
    """What is due, and what became of what was sent."""

    def __init__(self, requests: list[bytes]) -> None:
        self.requests = requests
        #: Each with the moment it was due; None: when it is sent.
        self.due: deque[tuple[bytes, float | None]] = deque()
        self.idle: list[Connection] = []
        self.latencies: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.over = asyncio.get_running_loop().create_future()

    def add(self, request: bytes, due: float | None) -> None:
        self.due.append((request, due))
        if self.idle:
            self.idle.pop().send()

    def count(self, status: str, latency: float) -> None:
        self.statuses[status] += 1
        self.latencies.append(latency)
        if len(self.latencies) == len(self.requests):
            self.over.set_result(time.perf_counter())


class Connection(asyncio.Protocol):
    """One connection with at most one delivery on its way."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.received = b""
        self.started: float | None = None
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport = transport

    def send(self) -> None:
        if not self.sending.due:
            self.sending.idle.append(self)
            return
        request, due = self.sending.due.popleft()
        self.started = time.perf_counter() if due is None else due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found or len(rest) < _length(head):
            return
        assert self.started is not None
        self.sending.count(head[9:12].decode(), time.perf_counter() - self.started)
        self.started, self.received = None, b""
        self.send()

    def connection_lost(self, error: Exception | None) -> None:
        if self.started is not None:
            raise SystemExit(f"a connection was lost with a delivery on its way: {error}")


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    if not found:
        raise SystemExit(f"an answer without a length: {head!r}")
    return int(rest.split(b"\r\n", 1)[0])


async def send(requests: list[bytes], where: SplitResult, connections: int, rate: float) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    sending = Sending(requests)

    async def connect() -> Connection:
        return (await loop.create_connection(lambda: Connection(sending), where.hostname, where.port))[1]

    # A threaded server lends a thread to each connection that stays silent: at a trickle, one has to do.
    opened = [await connect() for _ in range(1 if rate else connections)]
    gc.collect()
    gc.disable()
    spent, began = time.process_time(), time.perf_counter()
    if rate:
        sending.idle.extend(opened)
        for number, request in enumerate(requests):
            due = began + number / rate
            await asyncio.sleep(due - time.perf_counter())
            if not sending.idle and len(opened) < connections:
                opened.append(await connect())
                sending.idle.append(opened[-1])
            sending.add(request, due)
    else:
        sending.due.extend((request, None) for request in requests)
        for connection in opened:
            connection.send()
    async with asyncio.timeout(600):
        seconds = await sending.over - began
    spent = time.process_time() - spent
    for connection in opened:
        connection.transport.close()
    ordered = sorted(sending.latencies)
    return {
        "seconds": seconds,
        "rate": len(requests) / seconds,
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[len(ordered) * 99 // 100],
        "client_cpu_ms": 1000 * spent / len(requests),
        "statuses": dict(sending.statuses),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--header", default=HEADER)
    options = parser.parse_args()
    where, secret = urlsplit(options.url), os.environ["BENCH_WEBHOOK_SECRET"]
    requests = []
    for line in options.file.read_text().splitlines():
        body = json.loads(line)[1].encode()
        head = (
            f"POST {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{options.header}: {sign(body, secret)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    found = asyncio.run(send(requests, where, options.connections, options.rate))
    print(json.dumps(found))
    return 0 if set(found["statuses"]) == {"200"} else 1  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
