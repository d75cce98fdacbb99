"""A provider that lists any number of events without holding them: for measuring a catch-up.

    python benchmarks/event_stub.py EVENTS SECONDS

prints its port. Event i of N (0 is the oldest) lies i/N of SECONDS after the start; four events make a payment.
"""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

STATUSES = ("created", "requires_action", "processing", "succeeded")


class Events:
    def __init__(self, count: int, seconds: float) -> None:
        self.count = count
        self.end = datetime.now(UTC) - timedelta(seconds=30)
        self.start = self.end - timedelta(seconds=seconds)
        self.step = timedelta(seconds=seconds / count)

    def at(self, index: int) -> datetime:
        return self.start + index * self.step

    def index(self, moment: str, default: int) -> int:
        """The first event at or after a moment."""
        if not moment:
            return default
        return math.ceil((datetime.fromisoformat(moment) - self.start) / self.step)

    def event(self, index: int) -> dict[str, Any]:
        number, step = divmod(index, len(STATUSES))
        received = 10000 if STATUSES[step] == "succeeded" else 0
        at = self.at(index).isoformat()
        return {
            "id": f"evt_{index:012d}",
            "object": "event",
            "type": f"payment.{STATUSES[step]}",
            "created_at": at,
            "data": {
                "id": f"pay_{number:012d}",
                "object": "payment",
                "status": STATUSES[step],
                "amount": 10000,
                "amount_received": received,
                "currency": "CLP",
                "country": "CL",
                "method_code": "cl_card",
                "method_family": "card",
                "merchant_reference": f"order-{number}",
                "payer": {"name": "Ana Rojas", "email": "ana@example.com"},
                "metadata": {"cart": str(number)},
                "created_at": self.at(number * len(STATUSES)).isoformat(),
            },
        }

    def page(self, query: dict[str, str]) -> dict[str, Any]:
        low = max(0, self.index(query.get("created_from", ""), 0))
        high = min(self.count, self.index(query.get("created_to", ""), self.count))
        if "starting_after" in query:
            high = min(high, int(query["starting_after"].removeprefix("evt_")))
        limit = int(query.get("limit", "25"))
        indexes = range(high - 1, max(low, high - limit) - 1, -1)
        return {"object": "list", "has_more": high - limit > low, "data": [self.event(i) for i in indexes]}


def handler(events: Events) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            data = (
                events.page(query) if parts.path == "/v1/events" else {"object": "list", "has_more": False, "data": []}
            )
            body = json.dumps(data).encode()
            self.send_response_only(200)
            self.send_header("Date", format_datetime(datetime.now(UTC), usegmt=True))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    return Handler


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(Events(int(sys.argv[1]), float(sys.argv[2]))))
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
