"""Keeping personal data out: of rows that are there, and of rows that are still to come."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils import timezone

from payments_integration import wire
from payments_integration.enums import Kind
from payments_integration.models import Erasure
from payments_integration.projection import rows
from payments_integration.projection.refreshes import ObjectKey, any_of
from payments_integration.transactions import hold


def erased(keys: Iterable[ObjectKey]) -> set[ObjectKey]:
    """Those of these objects whose personal data is not to be kept; one statement, none without keys."""
    wanted = dict.fromkeys(keys, "")
    if not wanted:
        return set()
    return {wish.key for wish in Erasure.objects.filter(any_of(wanted))}


def keep_erased(objects: Iterable[tuple[str, wire.AnyResource]]) -> set[ObjectKey]:
    """Those of (account, object), all about to be inserted, that must be stored without personal data.

    What belongs to an erased object is erased with it: a refund with its payment, a payout with its refund. Call in
    the transaction that inserts; an IntegrityError means a lost race: repeat it. At most two statements.
    """
    sources = {
        (account, str(rows.KIND_OF[type(resource)]), rows.object_id_of(resource)): _parent(account, resource)
        for account, resource in objects
        if rows.model_of(rows.KIND_OF[type(resource)]).personal
    }
    known = erased({*sources, *(parent for parent in sources.values() if parent is not None)})
    found = {key for key, parent in sources.items() if key in known or parent in known}
    inherited = [
        Erasure(account=account, object_kind=kind, object_id=object_id, actor="with what it belongs to")
        for account, kind, object_id in sorted(found - known)
    ]
    if inherited:
        Erasure.objects.bulk_create(inherited)
    return found


def erase_row(account: str, kind: str, object_id: str) -> bool:
    """Empty what is personal of one mirror row, within a transaction; False where there is no such row."""
    model = rows.model_of(kind)
    row = hold(model._default_manager.filter(pk=object_id, account=account)).first()
    if row is None:
        return False
    since = row.erased_at or timezone.now()
    model._default_manager.filter(pk=row.pk).update(**rows.empty_values(model), erased_at=since)
    return True


def _parent(account: str, resource: wire.AnyResource) -> ObjectKey | None:
    if isinstance(resource, wire.Refund):
        return (account, str(Kind.PAYMENT), resource.payment_id)
    if isinstance(resource, wire.Payout) and resource.refund_id:
        return (account, str(Kind.REFUND), resource.refund_id)
    return None
