"""Run a reconciliation pass now: in a worker if PROCESSING is "celery", otherwise within the request."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration import conf, permissions, reconciliation
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import Outcome, may
from payments_integration.models import AccountState, ReconciliationRun, RunKind, RunState
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)

#: The maximum seconds for a pass within the request, and for waiting for the broker.
MAX_SECONDS = 20.0
_BROKER_SECONDS = 3.0
#: A task that no worker takes within these seconds is dropped. By then, the schedule has run the pass.
_EXPIRES = 900

#: The kinds that can be started here, in the order of the buttons.
KINDS: tuple[RunKind, ...] = (RunKind.EVENTS, RunKind.OBJECTS, RunKind.BALANCES)


def url(site: AdminSite, request: HttpRequest) -> str:
    """Return the URL that the buttons post ``account`` and ``kind`` to; empty if the user may not run a pass here."""
    if not may(request, "run_reconciliation") or not site.is_registered(ReconciliationRun):
        return ""
    return reverse("admin:payments_integration_reconciliationrun_run", current_app=site.name)


def start(account: str, kind: str, user: Any) -> tuple[Outcome, ReconciliationRun | AccountState]:
    """Run a pass, or have a worker run it. Returns the message, and the row whose history records the action.

    A pass is recorded as skipped while another one of the account is running. Raises PermissionDenied.
    """
    permissions.require(user, "run_reconciliation")
    if conf.current().PROCESSING == "celery":
        return _start_in_worker(account, kind), AccountState(account=account)
    run = _run(account, kind, time.monotonic() + MAX_SECONDS)
    return _outcome(run), run


def _run(account: str, kind: str, deadline: float) -> ReconciliationRun:
    if kind == RunKind.EVENTS:
        return reconciliation.reconcile_events(account, deadline=deadline)
    if kind == RunKind.OBJECTS:
        # A person who starts this wants to know if the rows differ now, so sweep all of them.
        return reconciliation.reconcile_objects(account, sweep=True, deadline=deadline)
    return reconciliation.reconcile_balances(account)


def _message(account: str, kind: str) -> tuple[Any, dict[str, Any]]:
    """Return the task that does in a worker what ``_run`` does here, and its arguments."""
    # Load Celery only when a pass is started.
    from payments_integration import tasks  # noqa: PLC0415

    if kind == RunKind.OBJECTS:
        return tasks.reconcile_objects, {"account": account, "sweep": True}
    return tasks.reconcile_events if kind == RunKind.EVENTS else tasks.sync_balances, {"account": account}


def _start_in_worker(account: str, kind: str) -> Outcome:
    if not _publish(*_message(account, kind)):
        return Outcome(
            _("The broker did not accept the task, so nothing was started. The schedule runs this pass anyway."),
            messages.ERROR,
        )
    claimed = AccountState.objects.filter(pk=account, claimed_until__gt=timezone.now())
    if kind == RunKind.EVENTS and claimed.exists():
        words = _("The pass was sent to a worker. It is skipped if another pass of this account is still running.")
        return Outcome(words, messages.WARNING)
    return Outcome(_("The pass was sent to a worker. It appears in the list once it has begun."))


def _outcome(run: ReconciliationRun) -> Outcome:
    if run.state == RunState.SKIPPED:
        return Outcome(_("Another pass of this account is running, so this one was skipped."), messages.WARNING)
    if run.error.startswith(f"{reconciliation.DeadlinePassed.__name__}:"):
        words = _(
            "Not finished within %(seconds)d seconds. What was read is kept; the next pass continues from there."
        )
        return Outcome(words % {"seconds": MAX_SECONDS}, messages.WARNING)
    if run.state == RunState.FAILED:
        # Show only the error's class, because its message may quote a row. The run's page shows it to permitted users.
        kind = run.error.partition(":")[0]
        return Outcome(_("The pass failed: %(error)s") % {"error": display.text(kind)}, messages.ERROR)
    words = _("Done: %(seen)d seen, %(recovered)d recovered, %(drifted)d differed, %(repaired)d repaired.")
    return Outcome(
        words % {"seen": run.seen, "recovered": run.recovered, "drifted": run.drifted, "repaired": run.repaired}
    )


def _publish(task: Any, arguments: dict[str, Any]) -> bool:
    """Send a task in a thread, so that a dead or hanging broker does not block the request."""
    sent, finished = threading.Event(), threading.Event()

    def publish() -> None:
        try:
            task.apply_async(kwargs=arguments, retry=False, expires=_EXPIRES)
        except Exception:
            account = arguments["account"]
            logger.exception("No message for %s of account %s", task.name, account, extra={"account": account})
        else:
            sent.set()
        finally:
            finished.set()

    threading.Thread(target=publish, name="payments-run-now", daemon=True).start()
    finished.wait(_BROKER_SECONDS)
    return sent.is_set()
