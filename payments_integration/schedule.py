"""The periodic work, for ``CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}``. Importable from settings: no models, no Celery.

Times are seconds. Change one by overriding its entry.
"""

from __future__ import annotations

from typing import Any

_TASKS = "payments_integration.tasks"
#: A message that nobody took for so long is void: a worker that was away for a day finds no day's worth of them. It is
#: far longer than clocks differ, or a worker whose clock is ahead would throw all of them away.
_EXPIRES = 900.0


def _every(seconds: float, task: str) -> dict[str, Any]:
    return {"task": f"{_TASKS}.{task}", "schedule": seconds, "options": {"expires": max(seconds, _EXPIRES)}}


#: The sweeper for what nobody was woken for: it must stay in the schedule.
BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "payments_integration.process_events": _every(30.0, "process_events"),
    "payments_integration.resume_operations": _every(30.0, "resume_operations"),
    "payments_integration.reconcile_events": _every(300.0, "reconcile_events"),
    "payments_integration.reconcile_objects": _every(600.0, "reconcile_objects"),
    "payments_integration.sync_balances": _every(900.0, "sync_balances"),
    "payments_integration.prune": _every(86400.0, "prune"),
}
