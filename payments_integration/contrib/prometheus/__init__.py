"""Metrics for Prometheus: a collector that reads the database, and counters of what each process does.

``PaymentsCollector`` works in any registry, also without this app in ``INSTALLED_APPS``. With it, each process counts
deliveries, requests and handlers in ordinary metrics of prometheus_client. Needs the extra ``prometheus``.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from payments_integration import lazy

if TYPE_CHECKING:
    from payments_integration.contrib.prometheus.collector import PaymentsCollector as PaymentsCollector
    from payments_integration.contrib.prometheus.exposition import exposition as exposition

if find_spec("prometheus_client") is None:
    raise ImproperlyConfigured(
        "payments_integration.contrib.prometheus needs prometheus_client: "
        'pip install "payments-integration[prometheus]".'
    )

# The app's configuration is imported before models can be.
__getattr__, __dir__, __all__ = lazy.exports(__name__)
