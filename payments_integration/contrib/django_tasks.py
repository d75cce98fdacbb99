"""Wake workers through Django's own tasks (``django.tasks``, from Django 6.0 on).

    "PROCESSING": "worker",
    "WAKE_UP": "payments_integration.contrib.django_tasks.wake_up",

Run a worker of the backend in ``TASKS``, and also run ``payments_process`` from cron: a task only starts work early.
"""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from payments_integration import reconciliation

try:
    from django.tasks import task
except ImportError as error:
    raise ImproperlyConfigured(
        "payments_integration.contrib.django_tasks needs Django 6.0, which brings django.tasks. With an older "
        "Django, run payments_worker and leave WAKE_UP out, or write a WAKE_UP for your task queue "
        "(docs/deployment.md)."
    ) from error


@task
def process_events(account: str) -> None:
    """Apply and dispatch events, send operations and read due objects of an account."""
    reconciliation.process_due(account)


def wake_up(account: str) -> None:
    """Enqueue the task. Name this function in ``WAKE_UP``."""
    process_events.enqueue(account)
