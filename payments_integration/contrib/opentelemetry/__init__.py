"""Record spans and metrics of the flows with OpenTelemetry. Needs the extra ``opentelemetry``, which is only its API.

Add ``payments_integration.contrib.opentelemetry`` to ``INSTALLED_APPS``. Your project sets up the SDK; without one,
nothing is recorded. ``docs/monitoring.md`` lists the spans, attributes and metrics.
"""
