"""The provider's own records, by the merchant's intent."""

from __future__ import annotations

from collections import defaultdict

from payments_integration.models import Operation
from tests.simulation.merchant import mark_of
from tests.simulation.world import RENEWED_KEY, World

#: By service function: the collection of the objects that it makes.
MADE_BY = {
    "create_payment": "payments",
    "create_payout": "payouts",
    "create_refund": "refunds",
    "create_deposit_reference": "deposit_references",
}

#: The same of the objects that it cancels.
CANCELS = {"cancel_payment": "payments", "cancel_payout": "payouts"}


def objects_by_mark(world: World) -> dict[tuple[str, str], list[str]]:
    """Ids of the provider's objects by service function and mark."""
    made: dict[tuple[str, str], list[str]] = defaultdict(list)
    for function, name in MADE_BY.items():
        for object_id, item in getattr(world.engine.default_project, name).items():
            mark = mark_of(item)
            if mark is not None:
                made[(function, mark)].append(object_id)
    return dict(made)


def mark_of_operation(world: World, operation: Operation) -> str | None:
    """The mark in its arguments, or in what they were before an erasure."""
    return mark_of(operation.arguments) if operation.arguments else world.marks.get(operation.pk)


def executions(world: World) -> dict[str, int]:
    """How often the provider carried a request out, by idempotency key."""
    counts: dict[str, int] = defaultdict(int)
    for entry in world.engine.gateway.log:
        if entry["idempotency_key"] and entry["status"] is not None and 200 <= entry["status"] < 300:
            counts[entry["idempotency_key"].removeprefix(f"{RENEWED_KEY} ")] += not entry["replayed"]
    return counts
