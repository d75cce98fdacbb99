"""Configure the app: connect its rows to the mirror, and the end of months to the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

from django.apps import AppConfig, apps
from django.core import checks
from django.db import router
from django.utils.translation import gettext_lazy as _

from payments_integration import signals


class FinanceConfig(AppConfig):
    name = "payments_integration.contrib.finance"
    label = "payments_finance"
    verbose_name = _("Bookkeeping of payments")
    default_auto_field = "django.db.models.BigAutoField"
    payments_groups: ClassVar[dict[str, tuple[str, ...]]] = {
        "Payments: viewer": ("view_movement",),
        "Payments: finance": ("view_movement",),
        "Payments: approver": ("view_movement",),
        "Payments: operations": ("view_movement",),
    }

    def ready(self) -> None:
        signals.on_mirror_written(record)
        signals.pass_ended.connect(close_months, dispatch_uid="payments_finance")
        checks.register(check_database, checks.Tags.models)


def record(rows: Sequence[Any]) -> None:
    """Record what the rows of a transaction imply. The first call loads the modules."""
    for name in ("movements", "balances"):
        import_module(f"payments_integration.contrib.finance.{name}").record(rows)


def close_months(**_: Any) -> None:
    """Store the balances of closed months. Connected to ``pass_ended``. Takes one statement if no month is due."""
    import_module("payments_integration.contrib.finance.closing").close_months()


def check_database(**_: Any) -> list[checks.CheckMessage]:
    """Report movements in another database than the mirror: they could not commit together."""
    ours = router.db_for_write(apps.get_model("payments_finance", "Movement"))
    mirrors = router.db_for_write(apps.get_model("payments_integration", "Payment"))
    if ours == mirrors:
        return []
    return [
        checks.Error(
            f'Movements are written to the database "{ours}", the mirror to "{mirrors}".',
            hint='Have the database router treat the app "payments_finance" like "payments_integration".',
            id="payments_integration.E040",
        )
    ]
