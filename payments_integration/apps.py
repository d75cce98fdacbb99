"""Configure the app: checks and handlers."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig, apps
from django.core import checks
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


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
        checks.register(app_checks.check_orders, checks.Tags.compatibility)
        checks.register(app_checks.check_webhook_urls, checks.Tags.urls)
        checks.register(app_checks.check_api, checks.Tags.security)
        checks.register(app_checks.check_deployment, checks.Tags.security, deploy=True)
        checks.register(app_checks.check_sentry, checks.Tags.security, deploy=True)
        checks.register(app_checks.check_endpoints, checks.Tags.database, deploy=True)
        checks.register(app_checks.check_keys, checks.Tags.database)
        checks.register(app_checks.check_accounts, checks.Tags.database)
        checks.register(app_checks.check_storage, checks.Tags.database)
        import_module("payments_integration.models.deletion").protect(apps.get_models())
        autodiscover_modules("payment_handlers")
