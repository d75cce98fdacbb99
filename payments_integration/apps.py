"""The app's configuration: checks, handlers, and the hook for wake-ups."""

from __future__ import annotations

import time
from importlib import import_module

from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from payments_integration import conf, wakeup


class PaymentsIntegrationConfig(AppConfig):
    name = "payments_integration"
    verbose_name = _("Payments and payouts")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Imported here, because they need the models.
        app_checks = import_module("payments_integration.checks")
        checks.register(app_checks.check_settings, checks.Tags.compatibility)
        checks.register(app_checks.check_handlers, checks.Tags.compatibility)
        checks.register(app_checks.check_webhook_urls, checks.Tags.urls)
        checks.register(app_checks.check_api, checks.Tags.security)
        checks.register(app_checks.check_deployment, checks.Tags.security, deploy=True)
        checks.register(app_checks.check_sentry, checks.Tags.security, deploy=True)
        checks.register(app_checks.check_keys, checks.Tags.database)
        checks.register(app_checks.check_accounts, checks.Tags.database)
        import_module("payments_integration.sql_views").connect(self)
        wakeup.set_hook(_on_wake)
        autodiscover_modules("payment_handlers")


_publisher = wakeup.Publisher(lambda account: import_module("payments_integration.tasks").wake_up(account))
_inline = wakeup.Inline(
    lambda account, deadline: import_module("payments_integration.reconciliation").process_due(
        account, deadline=deadline
    )
)


def _on_wake(account: str, deadline: float | None) -> None:
    if conf.current().PROCESSING == "celery":
        _publisher.publish(account)
    else:
        # The provider or the caller of a service waits for the answer.
        deadline = time.monotonic() + wakeup.INLINE_SECONDS if deadline is None else deadline
        _inline(account, deadline)
