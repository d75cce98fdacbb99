"""The app's configuration: it connects the movements to the mirror, and the receipts by mail to the signals."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.core import checks
from django.db import router
from django.utils.translation import gettext_lazy as _

from payments_integration import signals
from payments_integration.contrib.finance import receipt_options
from payments_integration.enums import PAID_PAYMENT_STATUSES


class FinanceConfig(AppConfig):
    name = "payments_integration.contrib.finance"
    label = "payments_finance"
    verbose_name = _("Bookkeeping of payments")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        signals.on_mirror_written(record_movements)
        checks.register(check_database, checks.Tags.models)
        connect_receipts()
        checks.register(receipt_options.check_setting, checks.Tags.compatibility)


def record_movements(rows: Sequence[Any]) -> None:
    """Record what the rows of a transaction imply. The module is loaded with the first of them."""
    import_module("payments_integration.contrib.finance.movements").record(rows)


def connect_receipts() -> None:
    """Have receipts queued and sent. Without the setting, no event is dispatched for them."""
    signals.status_changed.connect(queue_receipt, sender=apps.get_model("payments_integration", "Payment"))
    signals.pass_ended.connect(send_receipts)


def queue_receipt(**arguments: Any) -> None:
    """A receiver of ``status_changed``. The module is loaded with the first payment that is paid."""
    if receipt_options.is_on():
        import_module("payments_integration.contrib.finance.receipt_mails").queue(**arguments)


# A mistake in the setting is for the system checks: it must not park the payment's event.
queue_receipt.wants = lambda status: receipt_options.is_on() and status in PAID_PAYMENT_STATUSES  # type: ignore[attr-defined]


def send_receipts(**_: Any) -> None:
    """A receiver of ``pass_ended``."""
    if receipt_options.is_on():
        import_module("payments_integration.contrib.finance.receipt_mails").send_queued()


def check_database(**_: Any) -> list[checks.CheckMessage]:
    """Movements commit with the mirror only in the mirror's database."""
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
