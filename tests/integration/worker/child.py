"""A command of the app in a process of its own, with the tests' settings and a receiver.

    python -m tests.integration.worker.child JOB COMMAND [ARGUMENTS]

``JOB`` is JSON: ``database`` and ``options`` (the setting) as the test has them, ``folder`` for the files below, and
``interval``, the seconds of the schedule's sweeper. While the file ``hold`` is in the folder, a receiver that has
written its row makes a file ``entered`` and waits; it makes a file ``asked`` when the process is asked to stop.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402
from django.test import override_settings  # noqa: E402

from payments_integration import conf  # noqa: E402
from payments_integration.models import Event  # noqa: E402
from payments_integration.runtime import stopping  # noqa: E402
from payments_integration.schedule import BEAT_SCHEDULE  # noqa: E402
from payments_integration.signals import event_received, status_changed  # noqa: E402
from tests.factories.receivers.models import ReceiverCall  # noqa: E402


def main() -> None:
    job, arguments = json.loads(sys.argv[1]), sys.argv[2:]
    # Also for the connections of other threads.
    connections.databases["default"]["NAME"] = job["database"]
    connections["default"].settings_dict["NAME"] = job["database"]
    override_settings(**{conf.NAME: job["options"]}).enable()
    BEAT_SCHEDULE["payments_integration.process_events"]["schedule"] = job["interval"]
    folder = Path(job["folder"])
    hold, entered, asked = folder / "hold", folder / "entered", folder / "asked"

    def receive(sender: type[Any], event: Event, instance: Any, is_stale: bool, **kwargs: Any) -> None:
        ReceiverCall.objects.create(what=event.id, object_id=event.object_id)
        while hold.exists():
            entered.touch()
            if stopping.is_requested():
                asked.touch()
            time.sleep(0.02)

    for signal in (event_received, status_changed):
        signal.receivers = []  # the example shop is installed
    event_received.connect(receive)
    call_command(*arguments)


if __name__ == "__main__":
    main()
