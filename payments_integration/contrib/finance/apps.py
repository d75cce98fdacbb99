"""The app's configuration: it connects the movements to the mirror."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _

from payments_integration import signals


class FinanceConfig(AppConfig):
    name = "payments_integration.contrib.finance"
    label = "payments_finance"
    verbose_name = _("Bookkeeping of payments")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        signals.on_mirror_written(record_movements)
        checks.register(_check_database, checks.Tags.models)


def record_movements(rows: Sequence[Any]) -> None:
    """Record what the rows of a transaction imply. The module is loaded with the first of them."""
    import_module("payments_integration.contrib.finance.movements").record(rows)


def _check_database(**_: Any) -> list[checks.CheckMessage]:
    return list(import_module("payments_integration.contrib.finance.movements").check_database())
