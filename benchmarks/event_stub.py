"""A provider that lists any number of events and payments without holding them: for measuring a catch-up.

    python benchmarks/event_stub.py EVENTS SECONDS

prints its port. Event i of N (0 is the oldest) lies i/N of SECONDS after the start; four events make a payment. Pages
are pieced together from prepared bytes and the server does no more than it must, because it shares the processor with
what is measured.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

STATUSES = (b"created", b"requires_action", b"processing", b"succeeded")
BALANCES = ("CLP", "COP", "USD", "PEN", "MXN", "BRL")

_PAYMENT = (
    b'{"id":"pay_%012d","object":"payment","status":"%b","amount":10000,"amount_received":%d,"currency":"CLP",'
    b'"country":"CL","method_code":"cl_card","method_family":"card","merchant_reference":"order-%d",'
    b'"payer":{"name":"Ana Rojas","email":"ana@example.com"},"metadata":{"cart":"%d"},"created_at":"%b"}'
)
_EVENT = b'{"id":"evt_%012d","object":"event","type":"payment.%b","created_at":"%b","data":%b}'
_BALANCE = (
    '{"object":"balance","currency":"%s","available":1000,"pending":0,"reserve":0,"hold":0,"debt":0,'
    '"updated_at":"2026-01-01T00:00:00Z"}'
)
_SERVED = b"HTTP/1.1 200 OK\r\nDate: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


class Answers(Protocol):
    def answer(self, target: str) -> bytes:
        """The body that a GET of this path and query is answered with."""


class Listing:
    """The events and payments, by their number."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count = count
        self.end = datetime.now(UTC) - timedelta(seconds=30)
        self.start = self.end - timedelta(seconds=seconds)
        self.step = timedelta(seconds=seconds / count)

    def at(self, index: int) -> bytes:
        return (self.start + index * self.step).isoformat().encode()

    def index(self, moment: str, default: int) -> int:
        """The first event at or after a moment."""
        if not moment:
            return default
        return math.ceil((datetime.fromisoformat(moment) - self.start) / self.step)

    def payment(self, number: int, status: bytes = STATUSES[-1]) -> bytes:
        received = 10000 if status == STATUSES[-1] else 0
        return _PAYMENT % (number, status, received, number, number, self.at(number * len(STATUSES)))

    def event(self, index: int) -> bytes:
        number, step = divmod(index, len(STATUSES))
        status = STATUSES[step]
        return _EVENT % (index, status, self.at(index), self.payment(number, status))

    def events(self, query: dict[str, str]) -> bytes:
        low = max(0, self.index(query.get("created_from", ""), 0))
        high = min(self.count, self.index(query.get("created_to", ""), self.count))
        return self._page(query, low, high, self.event)

    def payments(self, query: dict[str, str]) -> bytes:
        low = max(0, math.ceil(self.index(query.get("created_from", ""), 0) / len(STATUSES)))
        return self._page(query, low, self.count // len(STATUSES), self.payment)

    def _page(self, query: dict[str, str], low: int, high: int, item: Callable[[int], bytes]) -> bytes:
        if "starting_after" in query:
            high = min(high, int(query["starting_after"].partition("_")[2]))
        limit = int(query.get("limit", "25"))
        items = b",".join(map(item, range(high - 1, max(low, high - limit) - 1, -1)))
        has_more = b"true" if high - limit > low else b"false"
        return b'{"object":"list","has_more":%b,"data":[%b]}' % (has_more, items)

    def answer(self, target: str) -> bytes:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        match parts.path.removeprefix("/v1/"):
            case "events":
                return self.events(query)
            case "payments":
                return self.payments(query)
            case "balances":
                return f'{{"data":[{",".join(_BALANCE % currency for currency in BALANCES)}]}}'.encode()
            case _:
                return json.dumps({"object": "list", "has_more": False, "data": []}).encode()


class Connection(asyncio.Protocol):
    """One kept connection; requests have no body."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            target = self._received[: self._received.index(b"\r\n")].split(b" ")[1].decode()
            self._received = self._received[end + 4 :]
            body = self._answers.answer(target)
            date = format_datetime(datetime.now(UTC), usegmt=True).encode()
            self._transport.write(_SERVED % (date, len(body), body))


async def serve(answers: Answers, port: int = 0) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Connection(answers), "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Listing(int(sys.argv[1]), float(sys.argv[2]))))
