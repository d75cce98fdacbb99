"""Is the mirror the provider's truth? Compared field by field, straight from JSON to columns.

None of the app's translation is used: a mistake in it would vouch for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from example_project.demo.provider import Books, Json
from payments_integration.models import Balance, DepositReference, Payment, Payout, Refund

#: Of the provider's fields, what is no column.
_NO_COLUMN = frozenset({"object"})


@dataclass(slots=True)
class Comparison:
    """What was compared, and every difference in words."""

    objects: int = 0
    fields: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return self.objects > 0 and not self.differences


def compare(books: Books) -> Comparison:
    """Every object that either side knows, and every field that either side fills."""
    found = Comparison()
    for name, model, items, key in (
        ("payment", Payment, books.payments, "id"),
        ("payout", Payout, books.payouts, "id"),
        ("refund", Refund, books.refunds, "id"),
        ("deposit reference", DepositReference, books.deposit_references, "id"),
        ("balance", Balance, books.balances, "currency"),
    ):
        rows = {str(getattr(row, key)): row for row in model._default_manager.filter(account="default")}
        _compare_kind(found, name, items, rows, key)
    return found


def _compare_kind(found: Comparison, name: str, items: Iterable[Json], rows: dict[str, Any], key: str) -> None:
    theirs = {item[key]: item for item in items}
    for object_id in sorted(rows.keys() - theirs.keys()):
        found.differences.append(f"{name} {object_id}: the mirror has it, the provider has not")
    for object_id, item in theirs.items():
        found.objects += 1
        row = rows.get(object_id)
        if row is None:
            found.differences.append(f"{name} {object_id}: the mirror does not have it")
            continue
        _compare_fields(found, f"{name} {object_id}", item, row)


def _compare_fields(found: Comparison, name: str, item: Json, row: Any) -> None:
    columns = {*row.mirrored, "id"} if hasattr(row, "id") and "id" in item else {*row.mirrored}
    for field_name in sorted((columns | item.keys() | row.extra.keys()) - _NO_COLUMN):
        ours = getattr(row, field_name) if field_name in columns else row.extra.get(field_name)
        theirs = item.get(field_name)
        if isinstance(ours, datetime) and isinstance(theirs, str):
            theirs = datetime.fromisoformat(theirs)
        found.fields += 1
        # 1 == True and 1 == 1.0 in Python; not in a ledger.
        if ours != theirs or type(ours) is not type(theirs):
            found.differences.append(f"{name}.{field_name}: {ours!r} here, {theirs!r} there")
