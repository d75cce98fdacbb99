"""Celery tasks. Each may run at any time, repeatedly, or concurrently with itself.

All take ``account`` (an alias); without it they work on every account.

The work to do is in the database and the schedule checks it regularly: a message only says "now". So a message is
acknowledged when a worker takes it, even if the project's default differs, and no broker delivers it again during a
long pass. The tasks set their own time limits, because a shorter one of the project would stop every long sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from celery import shared_task
from celery.contrib.django.task import DjangoTask
from django.db import connections
from kombu.utils.compat import detect_environment

from payments_integration import conf, reconciliation, services
from payments_integration.db.reconnecting import discard_all, discard_left_open
from payments_integration.db.transactions import drop_broken_connections, nested_database
from payments_integration.exceptions import TransactionRefused
from payments_integration.runtime.logs import get_logger
from payments_integration.schedule import EXPIRES, LIMITS

logger = get_logger(__name__)

#: Each step of ``process_events`` stops after about this many seconds, and a new message at the end of the queue
#: continues its work. So accounts take turns.
TURN_SECONDS = 2.0

Work = Callable[..., None]


def _task(work: Work) -> Any:
    @shared_task(  # type: ignore[arg-type]  # the types of Celery know no options beside named ones
        bind=True,
        # The project's task class (task_cls) does not apply. It could open a transaction, or drop every message
        # because an earlier one, which has expired or was killed, seems to run.
        base=DjangoTask,
        ignore_result=True,
        acks_late=False,
        expires=EXPIRES[work.__name__],  # django-celery-beat ignores the schedule's
        # The project's default does not apply. Messages that a limit holds back expire, so while messages come
        # faster than the limit, no task would run.
        rate_limit="0",
        soft_time_limit=LIMITS[work.__name__],
        time_limit=LIMITS[work.__name__],
    )
    @wraps(work)
    def run(task: Any, account: str | None = None, **options: Any) -> None:
        # A task that runs in the caller's thread uses the caller's connections.
        has_own_connections = not (task.request.is_eager or task.request.called_directly)
        if has_own_connections:
            # By an earlier task of the project: Celery cannot close such a connection, and no later task of this
            # process would commit.
            discard_left_open()
            drop_broken_connections()
        if nested_database() is not None:
            raise TransactionRefused(
                f"the task {task.name} commits step by step and cannot run inside a database transaction. Start "
                "it in a callback of transaction.on_commit."
            )
        try:
            work(account, **options)
        except Exception:
            # A handler may have changed the session, such as its search_path. CELERY_DB_REUSE_MAX, or a pool, would
            # give it to each later task of this process, which would fail as well.
            if has_own_connections:
                discard_all()
            raise
        finally:
            # With gevent and eventlet each task has its own connections, which no later task uses. If
            # CELERY_DB_REUSE_MAX keeps them, they stay open until the garbage is collected.
            if has_own_connections and detect_environment() != "default":
                connections.close_all()

    return run


@_task
def process_events(account: str | None = None) -> None:
    """Apply and dispatch events, send operations, read due objects. Runs on wake-ups and on schedule."""
    # With task_always_eager the next turn would run inside this one, and a long backlog would end in a RecursionError.
    turn_seconds = None if process_events.request.is_eager else TURN_SECONDS
    if reconciliation.process_due(account, turn_seconds=turn_seconds):
        try:
            wake_up(account)
        except Exception:
            logger.warning(
                "No message for the rest of the work could be published; doing it now",
                exc_info=True,
                extra={"account": account},
            )
            reconciliation.process_due(account)


@_task
def reconcile_events(account: str | None = None) -> None:
    """Find missed events through GET /events."""
    reconciliation.each(conf.aliases(account), reconciliation.reconcile_events)


@_task
def reconcile_objects(account: str | None = None, *, sweep: bool = False) -> None:
    """Read silent objects, sweep the lists once a day or, with ``sweep``, now, check the endpoints."""
    reconciliation.each(conf.aliases(account), partial(reconciliation.reconcile_objects, sweep=sweep))


@_task
def resume_operations(account: str | None = None) -> None:
    """Send deferred operations and resolve unknown ones."""
    services.resume_operations(account=account)


@_task
def sync_balances(account: str | None = None) -> None:
    """Read the balances."""
    reconciliation.each(conf.aliases(account), reconciliation.reconcile_balances)


@_task
def prune(account: str | None = None) -> None:
    """Delete data that is past its retention."""
    if account is None:
        reconciliation.prune()
    else:
        reconciliation.prune_daily(account)


def wake_up(account: str | None) -> None:
    """Publish one wake-up. It expires, because the schedule runs the same task every half minute."""
    process_events.apply_async(kwargs={"account": account}, retry=False, expires=60)
