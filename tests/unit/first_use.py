"""Forks fresh processes, whose threads parse every kind of object at once; prints how many of them crashed.

    python -m tests.unit.first_use 200

It runs in a process of its own, because a test process has parsed objects before and has threads that a fork loses.
"""

from __future__ import annotations

import os
import sys
import threading

import django
from django.conf import settings

settings.configure(USE_TZ=True)
django.setup()

from payments_integration import schemas  # noqa: E402  (needs the settings)

THREADS = 4
CREATED = "2026-01-01T00:00:00Z"
OBJECTS: dict[str, dict[str, object]] = {
    "payment": {
        "id": "pay_1", "status": "succeeded", "amount": 1, "amount_received": 1, "currency": "CLP", "country": "CL",
        "method_code": "cl_webpay_card", "method_family": "card", "created_at": CREATED,
    },
    "payout": {
        "id": "pout_1", "status": "succeeded", "amount": 1, "currency": "CLP", "country": "CL",
        "method_code": "cl_bank_transfer", "created_at": CREATED,
    },
    "refund": {
        "id": "ref_1", "status": "succeeded", "payment_id": "pay_1", "amount": 1, "currency": "CLP",
        "created_at": CREATED,
    },
    "deposit_reference": {
        "id": "dep_1", "status": "active", "country": "MX", "currency": "MXN", "method_code": "mx_spei",
        "details": {}, "created_at": CREATED,
    },
    "balance": {"currency": "CLP", "available": 1, "pending": 0, "reserve": 0, "hold": 0, "debt": 0},
    "webhook_endpoint": {"id": "we_1", "url": "https://shop.example", "events": [], "status": "active"},
}  # fmt: skip


def parse_all(barrier: threading.Barrier) -> None:
    barrier.wait()
    for kind, struct in schemas.RESOURCES.items():
        schemas.parse_resource({"object": kind, **OBJECTS[kind]}, struct)  # type: ignore[type-var]
    schemas.parse_payment_method({"code": "mx_spei"})


def child() -> None:
    sys.setswitchinterval(1e-6)
    barrier = threading.Barrier(THREADS)
    threads = [threading.Thread(target=parse_all, args=(barrier,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(forks: int) -> int:
    crashed = 0
    for _ in range(forks):
        pid = os.fork()
        if not pid:
            child()
            os._exit(0)
        crashed += os.waitpid(pid, 0)[1] != 0
    return crashed


if __name__ == "__main__":
    sys.stdout.write(f"{main(int(sys.argv[1]))}\n")
