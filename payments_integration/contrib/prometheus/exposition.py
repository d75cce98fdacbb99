"""Write all metrics of a site in one text: the database's metrics and the processes' metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry, multiprocess
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from payments_integration.contrib.prometheus import process
from payments_integration.contrib.prometheus.collector import UP, PaymentsCollector

#: The environment variable that names the directory in which several processes keep their values (prometheus_client).
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"


class _OneProcess(Collector):
    """The default registry, and the database's families if no ``PaymentsCollector`` is registered there."""

    def collect(self) -> Iterator[Metric]:
        families = {family.name: family for family in REGISTRY.collect()}
        yield from families.values()
        if UP not in families:
            yield from PaymentsCollector().collect()


def exposition(accept: str = "") -> tuple[bytes, str]:
    """Return the text for a client that accepts these formats, and its content type.

    With ``PROMETHEUS_MULTIPROC_DIR``, it has the sums over all processes that share the directory. Otherwise it has
    the default registry of this process.
    """
    process.begin_at_zero()
    registry = CollectorRegistry()
    if os.environ.get(DIRECTORY):
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        registry.register(PaymentsCollector())
    else:
        registry.register(_OneProcess())
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
