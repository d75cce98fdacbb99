"""A backup of the whole database, and what an operator does to restore it (docs/runbook.md, "Restore a backup")."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from payments_integration import reconciliation, services
from payments_integration.models import AccountState, RunState
from tests.simulation import draining
from tests.simulation.accounting import objects_by_mark
from tests.simulation.tables import dump, load
from tests.simulation.world import ACCOUNT, World

#: The provider keeps keys for so long: later, the merchant's own code must not ask again (docs/runbook.md).
KEYS_KEPT = timedelta(hours=23)
#: Long before the provider forgets an event.
OLDEST = timedelta(days=20)
#: A pass that ran during the backup blocks others for up to fifteen seconds.
_BLOCKED = 16.0


@dataclass(frozen=True)
class Backup:
    """Every row, and what the simulation knew of the database then."""

    at: datetime
    rows: dict[str, list[tuple[Any, ...]]]
    watch: dict[str, Any]
    #: How many calls of each intent had ended.
    calls: dict[str, int]
    replays: frozenset[str]
    finished: frozenset[str]
    rejected: frozenset[str]


def back_up(world: World) -> Backup | None:
    """Returns None before the first contact: the restored app would take all that happened since for history."""
    if not AccountState.objects.filter(account=ACCOUNT).exclude(first_contact_at=None).exists():
        return None
    return Backup(
        world.time.now,
        dump(),
        world.watch.backup(),
        {mark: len(intent.outcomes) for mark, intent in world.intents.items()},
        frozenset(world.replays),
        frozenset(world.finished),
        frozenset(world.rejected),
    )


def restore(world: World, backup: Backup, worker: str, *, rejects: bool) -> None:
    """Everything stops, the backup is restored, and the operator takes the steps of the runbook.

    ``rejects``: what was approved and made since is rejected. Otherwise it waits for the second person again.
    """
    for process in list(world.processes.values()):
        world.end(process)
    world.messages.clear()
    load(backup.rows)
    world.watch.restore(backup.watch)
    world.replays, world.finished, world.rejected = map(set, (backup.replays, backup.finished, backup.rejected))
    world.lost |= {mark for mark, intent in world.intents.items() if len(intent.outcomes) != backup.calls.get(mark, 0)}
    _made_by_the_lost(world)
    for _ in range(5):
        passes = world.start(worker, "payments_reconcile --full", _reconcile).result or []
        if passes and all(state == RunState.DONE for state in passes):
            break
        world.advance(_BLOCKED)
    if rejects:
        for operation in draining.awaiting_approval():
            if draining.executed_as(world, operation):
                world.start("web-1", f"reject {operation.pk}", partial(world.merchant.approve, operation, True))
    world.start("web-1", "a new rotation", partial(services.rotate_webhook_secret, world.endpoint_id))


def _reconcile() -> list[str]:
    return [
        reconciliation.reconcile_events(ACCOUNT, resync=False).state,
        reconciliation.reconcile_objects(ACCOUNT, full=True).state,
    ]


def _made_by_the_lost(world: World) -> None:
    """To the restored ledger, their refunds are of the dashboard."""
    refunds = world.engine.default_project.refunds
    for (function, mark), made in objects_by_mark(world).items():
        if function == "create_refund" and mark in world.lost:
            for object_id in made:
                world.refunded_elsewhere[refunds[object_id]["payment_id"]].append(object_id)
