"""Publish the feed to Kafka until killed: ``python -m tests.systems.feeds.child before|after NTH``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import django
from django.conf import settings


def main(when: str, nth: int) -> None:
    settings.DATABASES["default"]["NAME"] = os.environ["FEEDS_DATABASE"]
    settings.FEEDS_KAFKA = {"bootstrap.servers": os.environ["FEEDS_BROKERS"]}
    settings.FEEDS_TOPIC = os.environ["FEEDS_TOPIC"]
    django.setup()
    from feeds import kafka  # noqa: PLC0415
    from feeds.publishing import publish  # noqa: PLC0415

    calls = 0

    def send(entries: list[Any]) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == nth and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        acknowledged: list[int] = kafka.send(entries)
        if calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return acknowledged

    publish(send)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
