"""Settings of the site, the workers and beat: the example project's own, with receivers that a test can hold still."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from example_project.settings import *  # noqa: F403
from example_project.settings import CELERY_BEAT_SCHEDULE, INSTALLED_APPS, PAYMENTS_INTEGRATION, env
from payments_integration.schedule import beat_schedule, route_by_account

INSTALLED_APPS = [*INSTALLED_APPS, "tests.factories.receivers", "tests.systems.brokers.merchant", "django_celery_beat"]

#: What a test has different from the example: {"CELERY_TASK_ACKS_LATE": true}; options of the app as "PAYMENTS"; as
#: "QUEUES" the accounts that have a queue of their own.
_changes: dict[str, Any] = json.loads(env.str("TEST_CHANGES", default="{}"))
#: The same in a file that may appear while processes run: one that starts or reloads later reads it, as new code.
_later = Path(env.str("TEST_GATES", default=".")) / "changes.json"
if _later.exists():
    _changes |= json.loads(_later.read_text())
PAYMENTS_INTEGRATION = {**PAYMENTS_INTEGRATION, **_changes.pop("PAYMENTS", {})}
_queues: dict[str, str] = _changes.pop("QUEUES", {})
globals().update(_changes)

if _queues:
    CELERY_TASK_ROUTES = [route_by_account(_queues)]
    CELERY_BEAT_SCHEDULE = {
        name: {**entry, "schedule": CELERY_BEAT_SCHEDULE[name.rpartition(".")[0]]["schedule"]}
        for name, entry in beat_schedule(PAYMENTS_INTEGRATION["ACCOUNTS"]).items()
    }
#: Only the entries that the test wants run by themselves.
_wanted = env.list("TEST_SCHEDULE", default=[])
CELERY_BEAT_SCHEDULE = {
    name: entry for name, entry in CELERY_BEAT_SCHEDULE.items() if entry["task"].rpartition(".")[2] in _wanted
}
