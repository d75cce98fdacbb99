"""Configure the app: checks, handlers, and the hook for wake-ups."""

from __future__ import annotations

import time
from importlib import import_module

from django.apps import AppConfig, apps
from django.core import checks
from django.db import connections, router
from django.utils.module_loading import autodiscover_modules, import_string
from django.utils.translation import gettext_lazy as _

from payments_integration import conf, wakeup


class PaymentsIntegrationConfig(AppConfig):
    name = "payments_integration"
    verbose_name = _("Payments and payouts")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # imported here, because they need the models
        app_checks = import_module("payments_integration.checks")
        checks.register(app_checks.check_settings, checks.Tags.compatibility)
        checks.register(app_checks.check_database, checks.Tags.compatibility)
        checks.register(app_checks.check_handlers, checks.Tags.compatibility)
        checks.register(app_checks.check_webhook_urls, checks.Tags.urls)
        checks.register(app_checks.check_api, checks.Tags.security)
        checks.register(app_checks.check_deployment, checks.Tags.security, deploy=True)
        checks.register(app_checks.check_sentry, checks.Tags.security, deploy=True)
        checks.register(app_checks.check_endpoints, checks.Tags.database, deploy=True)
        checks.register(app_checks.check_keys, checks.Tags.database)
        checks.register(app_checks.check_accounts, checks.Tags.database)
        checks.register(app_checks.check_storage, checks.Tags.database)
        import_module("payments_integration.models.deletion").protect(apps.get_models())
        wakeup.set_hook(_on_wake)
        autodiscover_modules("payment_handlers")


def _send_wake_up(account: str) -> None:
    """Send a wake-up, in the publisher's thread: no answer waits for a broker, the database or project code."""
    settings = conf.current()
    try:
        if settings.PROCESSING == "celery":
            import_module("payments_integration.tasks").wake_up(account)
            return
        try:
            _notify(account)
        finally:
            # Even if the database could not be reached: the two are independent.
            if settings.WAKE_UP:
                import_string(settings.WAKE_UP)(account)
    finally:
        # This thread's own: a queue in the database, or the project's code when a task is published, may have opened
        # some. Nothing else would notice that the server has dropped them.
        connections.close_all()


def _notify(account: str) -> None:
    """Notify every ``payments_worker``, if the database can."""
    notifications = import_module("payments_integration.db.notifications")
    using = router.db_for_write(apps.get_model("payments_integration", "Event"))
    if notifications.can_notify(using):
        notifications.notify(using, account)


_publisher = wakeup.Publisher(_send_wake_up)
_inline = wakeup.Inline(
    lambda account, deadline: import_module("payments_integration.reconciliation").process_due(
        account, deadline=deadline
    )
)


def _is_eager_test() -> bool:
    """Return True in a test of a project whose Celery runs each task in its caller's thread.

    The publisher's thread would not see the test's transaction, and would lock a database in memory for the test.
    """
    if conf.current().PROCESSING != "celery" or not conf.in_test_environment():
        return False
    task = import_module("payments_integration.tasks").process_events
    return bool(task.app.conf.task_always_eager)


def _on_wake(account: str, deadline: float | None) -> None:
    if conf.current().PROCESSING != "inline" and not _is_eager_test():
        _publisher.publish(account)
    else:
        # The provider or the caller of a service waits for the answer.
        deadline = time.monotonic() + wakeup.INLINE_SECONDS if deadline is None else deadline
        _inline(account, deadline)
