"""Configure the app: checks and handlers."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig, apps
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class PaymentsIntegrationConfig(AppConfig):
    name = "payments_integration"
    verbose_name = _("Payments and payouts")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # imported here, because they need the models
        import_module("payments_integration.checks")
        import_module("payments_integration.models.deletion").protect(apps.get_models())
        autodiscover_modules("payment_handlers")
