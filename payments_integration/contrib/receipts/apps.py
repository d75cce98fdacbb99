"""Configure the app: connect the receipts by mail to the signals, and check the setting."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.core import checks
from django.utils.translation import gettext_lazy as _

from payments_integration import signals
from payments_integration.contrib.receipts import options
from payments_integration.enums import PAID_PAYMENT_STATUSES


class ReceiptsConfig(AppConfig):
    name = "payments_integration.contrib.receipts"
    label = "payments_receipts"
    verbose_name = _("Receipts of payments")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        connect()
        checks.register(options.check_setting, checks.Tags.compatibility)


def connect() -> None:
    """Connect the functions that queue and send receipts. Without the setting, no event is dispatched for them."""
    signals.status_changed.connect(queue, sender=apps.get_model("payments_integration", "Payment"))
    signals.pass_ended.connect(send_queued)


def queue(**arguments: Any) -> None:
    """Queue a receipt. Connected to ``status_changed``. The first paid payment loads the module."""
    if options.is_on():
        import_module("payments_integration.contrib.receipts.mails").queue(**arguments)


# Ask only if the setting exists: the system checks report its mistakes, which must not park the payment's event.
queue.payments_wants = (  # type: ignore[attr-defined]
    lambda status: options.is_on() and status in PAID_PAYMENT_STATUSES
)
queue.payments_database_only = True  # type: ignore[attr-defined]


def send_queued(**_: Any) -> None:
    """Send the queued receipts. Connected to ``pass_ended``."""
    if options.is_on():
        import_module("payments_integration.contrib.receipts.mails").send_queued()
