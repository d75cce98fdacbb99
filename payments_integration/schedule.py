"""The periodic tasks, for ``CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}``. Settings can import it: no models, no Celery.

Times are in seconds. To change one, override its entry.

If one account's backlog must not delay other accounts, use ``beat_schedule``, which gives every account its own
entries, together with ``route_by_account``, which gives its tasks their own queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

_TASKS = "payments_integration.tasks"
#: ``process_events`` and ``resume_operations`` also find work whose wake-up was lost: keep them in the schedule.
_SECONDS = {
    "process_events": 30.0,
    "resume_operations": 30.0,
    "reconcile_events": 300.0,
    "reconcile_objects": 600.0,
    "sync_balances": 900.0,
    "prune": 86400.0,
}
#: By task: a message expires after this time, so that a worker that was down for a day does not find a day's worth of
#: messages. It is far longer than clocks differ, because a worker whose clock is ahead would discard every message.
EXPIRES = {task: max(seconds, 900.0) for task, seconds in _SECONDS.items()}
#: By task: seconds after which Celery kills one that hangs. Tasks stop long before. A task that may have to read weeks
#: of events or every object has the longer limit. A killed task loses nothing.
LIMITS = {
    task: 12 * 3600 if task in ("reconcile_events", "reconcile_objects", "prune") else 25 * 60 for task in _SECONDS
}

#: An entry for each task, named by it.
BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    f"payments_integration.{task}": {
        "task": f"{_TASKS}.{task}",
        "schedule": seconds,
        "options": {"expires": EXPIRES[task]},
    }
    for task, seconds in _SECONDS.items()
}


def beat_schedule(accounts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the same entries for each of these aliases: ``CELERY_BEAT_SCHEDULE = beat_schedule(ACCOUNTS)``.

    Pass every alias: an account that is missing has no scheduled tasks. The name of each entry is its name in
    BEAT_SCHEDULE, a dot and the alias. Raises TypeError for one alias that is not in a list.
    """
    if isinstance(accounts, str):
        raise TypeError(f"beat_schedule() takes a list of aliases: [{accounts!r}].")
    return {
        f"{name}.{account}": {**entry, "kwargs": {"account": account}, "options": {**entry["options"]}}
        for account in accounts
        for name, entry in BEAT_SCHEDULE.items()
    }


def route_by_account(queues: Mapping[str, str]) -> Callable[..., dict[str, str] | None]:
    """Return a router for ``CELERY_TASK_ROUTES = [route_by_account({"alias": "queue"})]``.

    It sends this app's tasks for an account to the account's queue, even if wake-ups, the schedule, the admin or the
    project publish them. Other tasks, other accounts and tasks for all accounts are left to the next routes. Therefore
    use ``beat_schedule`` as well: a task for all accounts goes to no account's queue.
    """

    def route(name: str, args: Any, kwargs: Any, *_: Any, **__: Any) -> dict[str, str] | None:
        if not name.startswith(f"{_TASKS}."):
            return None
        # The account is the only argument of every task.
        account = (kwargs or {}).get("account") or next(iter(args or ()), "")
        return {"queue": queues[account]} if account in queues else None

    return route
