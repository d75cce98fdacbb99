"""The record of a pass."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError
from django.utils import timezone

from payments_integration.exceptions import PaymentsError
from payments_integration.models import MIRRORS, ReconciliationRun, RunState
from payments_integration.reconciliation.leases import LeaseTaken
from payments_integration.wire import WireError

logger = logging.getLogger(__name__)

#: Called with the run after each page, for a progress bar.
Progress = Callable[[ReconciliationRun], None]

MAX_DRIFT_ENTRIES = 100
MASKED_FIELDS = frozenset(name for model in MIRRORS.values() for name in ("extra", *model.personal))


class TimeUp(PaymentsError):
    """Somebody waits for this pass, and its time is over; what was read is kept, and the next pass goes on."""


def check_time(run: ReconciliationRun, deadline: float | None) -> None:
    """Raise TimeUp once the deadline (``time.monotonic()``) has passed."""
    if deadline is not None and time.monotonic() >= deadline:
        raise TimeUp(f"stopped after {run.pages} pages; the next pass goes on")


@contextmanager
def recorded(account: str, kind: str) -> Iterator[ReconciliationRun]:
    """A saved run that is finished however the block ends.

    What the provider or the database did ends in its ``error`` and goes no further: the next account and the next
    pass go on. A bug goes through.
    """
    run = ReconciliationRun.objects.create(account=account, kind=kind)
    try:
        yield run
    except LeaseTaken:
        run.state = RunState.SKIPPED
    except (PaymentsError, WireError, DatabaseError) as error:
        logger.warning("Reconciliation (%s) of account %s failed: %s", kind, account, error)
        run.state, run.error = RunState.FAILED, f"{type(error).__name__}: {error}"
    except BaseException as error:
        run.state, run.error = RunState.FAILED, f"{type(error).__name__}: {error}"
        raise
    else:
        run.state = RunState.FAILED if run.error else RunState.DONE
    finally:
        run.finished_at = timezone.now()
        run.save()


def add_drift(run: ReconciliationRun, object_id: str, differences: dict[str, tuple[Any, Any]]) -> None:
    """Count an object that differed, and keep what differed (personal data masked)."""
    run.drifted += 1
    for field, (ours, theirs) in sorted(differences.items()):
        if len(run.drift) >= MAX_DRIFT_ENTRIES:
            return
        masked = field in MASKED_FIELDS
        run.drift.append(
            {
                "object": object_id,
                "field": field,
                "ours": "…" if masked else _plain(ours),
                "theirs": "…" if masked else _plain(theirs),
            }
        )


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | bool | None) else str(value)
