"""The periodic work, for ``CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}``. Importable from settings: no models, no Celery.

Times are seconds. Change one by overriding its entry.
"""

from __future__ import annotations

from typing import Any

_TASKS = "payments_integration.tasks"

#: The sweeper for what nobody was woken for: it must stay in the schedule.
BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "payments_integration.process_events": {"task": f"{_TASKS}.process_events", "schedule": 30.0},
    "payments_integration.resume_operations": {"task": f"{_TASKS}.resume_operations", "schedule": 30.0},
    "payments_integration.reconcile_events": {"task": f"{_TASKS}.reconcile_events", "schedule": 300.0},
    "payments_integration.reconcile_objects": {"task": f"{_TASKS}.reconcile_objects", "schedule": 600.0},
    "payments_integration.sync_balances": {"task": f"{_TASKS}.sync_balances", "schedule": 900.0},
    "payments_integration.prune": {"task": f"{_TASKS}.prune", "schedule": 86400.0},
}
