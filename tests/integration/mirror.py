"""Compares the mirror with the sandbox's objects, field by field, without the app's projection."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from payments_integration.models import Balance, DepositReference, Payment, Payout, Refund
from payments_integration.testing import ProviderSandbox

KINDS: tuple[tuple[str, type[Any]], ...] = (
    ("payments", Payment),
    ("payouts", Payout),
    ("refunds", Refund),
    ("deposit_references", DepositReference),
)


def assert_mirror_equals_provider(sandbox: ProviderSandbox) -> None:
    """Every object of the provider is mirrored with equal fields, and there are no others."""
    for name, model in KINDS:
        theirs = {key: plain(item) for key, item in getattr(sandbox.project, name).items()}
        ours = {row.pk: row_plain(row) for row in model.objects.filter(account=sandbox.account)}
        assert ours == theirs, name
    for currency, item in sandbox.project.balances.items():
        row = Balance.objects.filter(account=sandbox.account, currency=currency).first()
        if row is not None:
            fields = ("available", "pending", "reserve", "hold", "debt")
            assert {field: getattr(row, field) for field in fields} == {field: item[field] for field in fields}, (
                currency
            )


def plain(item: dict[str, Any]) -> dict[str, Any]:
    return {key: moment(key, value) for key, value in item.items() if value is not None and key != "object"}


def row_plain(row: Any) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.mirrored} | row.extra | {"id": row.pk}
    return {key: value for key, value in values.items() if value is not None}


def moment(key: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if key.endswith("_at") and isinstance(value, str) else value
