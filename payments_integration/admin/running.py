"""A pass of reconciliation, now: asked of a worker, or done while the person waits, as events are processed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration import conf, permissions, reconciliation
from payments_integration.admin import display
from payments_integration.admin.buttons import Outcome
from payments_integration.models import AccountState, ReconciliationRun, RunKind, RunState

logger = logging.getLogger(__name__)

#: How long a person waits for a pass, and for a broker.
SECONDS = 20.0
_BROKER_SECONDS = 3.0
#: A message that nobody took for so long is void: the schedule has done it.
_EXPIRES = 900


@dataclass(frozen=True, slots=True)
class _Way:
    """How a kind of pass is done: by a task, or here until a deadline."""

    task: Any
    run: Callable[[str, float], ReconciliationRun]


def _ways() -> dict[str, _Way]:
    # Celery is heavy, and the admin is loaded where nobody will ask for a pass.
    from payments_integration import tasks  # noqa: PLC0415

    return {
        RunKind.EVENTS: _Way(
            tasks.reconcile_events,
            lambda account, deadline: reconciliation.reconcile_events(account, deadline=deadline),
        ),
        RunKind.OBJECTS: _Way(
            tasks.reconcile_objects,
            lambda account, deadline: reconciliation.reconcile_objects(account, deadline=deadline),
        ),
        RunKind.BALANCES: _Way(
            tasks.sync_balances, lambda account, deadline: reconciliation.reconcile_balances(account)
        ),
    }


#: What can be asked for, in the order of the buttons.
KINDS: tuple[RunKind, ...] = (RunKind.EVENTS, RunKind.OBJECTS, RunKind.BALANCES)


def url(site: AdminSite) -> str:
    """Where the buttons post ``account`` and ``kind`` to."""
    return reverse("admin:payments_integration_reconciliationrun_run", current_app=site.name)


def start(account: str, kind: str, user: Any) -> tuple[Outcome, ReconciliationRun | AccountState]:
    """Have a pass done; returns what came of it in words, and the row whose history should have it.

    A second pass beside one that runs does no harm: it is recorded as skipped. Raises PermissionDenied.
    """
    permissions.require(user, "run_reconciliation")
    way = _ways()[kind]
    if conf.current().PROCESSING == "celery":
        return _asked(account, kind, way), AccountState(account=account)
    run = way.run(account, time.monotonic() + SECONDS)
    return _done(run), run


def _asked(account: str, kind: str, way: _Way) -> Outcome:
    if not _published(way.task, account):
        return Outcome(
            _("The broker did not take it. Nothing was started now; the schedule does it anyway."), messages.ERROR
        )
    if kind == RunKind.EVENTS and _runs(account):
        words = _("A worker was asked for it. Another pass of this account is running: this one is then left out.")
        return Outcome(words, messages.WARNING)
    return Outcome(_("A worker was asked for it; the run stands in the list once it has begun."))


def _done(run: ReconciliationRun) -> Outcome:
    if run.state == RunState.SKIPPED:
        return Outcome(_("Another pass of this account is running; this one was left out."), messages.WARNING)
    if run.error.startswith(f"{reconciliation.TimeUp.__name__}:"):
        words = _("Not finished within %(seconds)d seconds. What was read is kept, and the next pass goes on.")
        return Outcome(words % {"seconds": SECONDS}, messages.WARNING)
    if run.state == RunState.FAILED:
        # What it says besides may quote a row; it stands on the run's page, for those who may see that.
        kind = run.error.partition(":")[0]
        return Outcome(_("The pass failed: %(error)s") % {"error": display.text(kind)}, messages.ERROR)
    words = _("Done: %(seen)d seen, %(recovered)d recovered, %(drifted)d differed, %(repaired)d mended.")
    return Outcome(
        words % {"seen": run.seen, "recovered": run.recovered, "drifted": run.drifted, "repaired": run.repaired}
    )


def _runs(account: str) -> bool:
    """Whether a pass over the events holds the account now."""
    return AccountState.objects.filter(pk=account, lease_until__gt=timezone.now()).exists()


def _published(task: Any, account: str) -> bool:
    """Have one message sent. A broker that is dead or hangs keeps a thread of its own, not the person."""
    sent = threading.Event()

    def publish() -> None:
        try:
            task.apply_async(kwargs={"account": account}, retry=False, expires=_EXPIRES)
        except Exception:
            logger.exception("No message for %s of account %s", task.name, account)
        else:
            sent.set()
        finally:
            over.set()

    over = threading.Event()
    threading.Thread(target=publish, name="payments-run-now", daemon=True).start()
    over.wait(_BROKER_SECONDS)
    return sent.is_set()
