"""The periodic work, for ``CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}``. Importable from settings: no models, no Celery.

Times are seconds. Change one by overriding its entry.

Where one account's backlog must not delay another's, ``beat_schedule`` gives every account entries of its own and
``route_by_account`` gives its tasks a queue of their own: the two belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


def beat_schedule(accounts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The same for each of these aliases apart, as in ``CELERY_BEAT_SCHEDULE = beat_schedule(ACCOUNTS)``.

    Give it all of them, as the setting's dict does: what is not named is swept by nobody. Entries are named as those
    of BEAT_SCHEDULE, with a dot and the alias behind.
    """
    return {
        f"{name}.{account}": {**entry, "kwargs": {"account": account}, "options": {**entry["options"]}}
        for account in accounts
        for name, entry in BEAT_SCHEDULE.items()
    }


def route_by_account(queues: Mapping[str, str]) -> Callable[..., dict[str, str] | None]:
    """A router for ``CELERY_TASK_ROUTES = [route_by_account({"alias": "queue"})]``.

    It sends this app's tasks for an account to the account's queue, whoever publishes them: wake-ups, the schedule,
    the admin, a project. All else is left to the routes after it: other tasks, other accounts, and a task for all
    accounts, which belongs to no queue of one; so a project that routes by account schedules by account.
    """

    def route(name: str, args: Any, kwargs: Any, *_: Any, **__: Any) -> dict[str, str] | None:
        if not name.startswith(f"{_TASKS}."):
            return None
        # Every task takes the account alone.
        account = (kwargs or {}).get("account") or next(iter(args or ()), "")
        return {"queue": queues[account]} if account in queues else None

    return route
