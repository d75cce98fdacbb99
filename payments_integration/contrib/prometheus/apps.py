"""Configure the app: connect this process's metrics to the flows."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.core import checks

from payments_integration import telemetry
from payments_integration.contrib.prometheus import options


class PrometheusConfig(AppConfig):
    name = "payments_integration.contrib.prometheus"
    label = "payments_prometheus"

    def ready(self) -> None:
        process = import_module("payments_integration.contrib.prometheus.process")  # needs the models
        telemetry.observe(process.OBSERVER)
        checks.register(options.check_setting, checks.Tags.security)
