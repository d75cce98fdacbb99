"""Configure the app: connect the observers."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

from payments_integration import telemetry

EXTRA = 'pip install "payments-integration[opentelemetry]"'


class OpenTelemetryConfig(AppConfig):
    name = "payments_integration.contrib.opentelemetry"
    label = "payments_opentelemetry"

    def ready(self) -> None:
        try:
            spans, instruments = (import_module(f"{self.name}.{module}") for module in ("spans", "instruments"))
        except ImportError as error:
            raise ImproperlyConfigured(f"{self.name} needs opentelemetry-api: {EXTRA}") from error
        telemetry.observe(spans.Spans())
        telemetry.observe(instruments.Instruments())
