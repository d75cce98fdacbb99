"""Spans and metrics of the flows for OpenTelemetry. Needs the extra ``opentelemetry``, which is its API alone.

Add ``payments_integration.contrib.opentelemetry`` to ``INSTALLED_APPS``. Your project sets up the SDK; without one,
nothing is recorded. ``docs/monitoring.md`` lists the spans, attributes and metrics.
"""
