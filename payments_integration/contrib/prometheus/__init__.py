"""Export metrics to Prometheus: a collector reads the database, and each process counts its own work.

``PaymentsCollector`` works in any registry, even without this app in ``INSTALLED_APPS``. With the app, each process
counts deliveries, requests and handlers in ordinary metrics of prometheus_client. Needs the extra ``prometheus``.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from payments_integration.runtime import lazy

if TYPE_CHECKING:
    from payments_integration.contrib.prometheus.collector import PaymentsCollector as PaymentsCollector
    from payments_integration.contrib.prometheus.exposition import exposition as exposition

if find_spec("prometheus_client") is None:
    raise ImproperlyConfigured(
        "payments_integration.contrib.prometheus needs prometheus_client: "
        'pip install "payments-integration[prometheus]".'
    )

# Export lazily: Django imports the app's configuration before models can be imported.
__getattr__, __dir__, __all__ = lazy.exports(__name__)
