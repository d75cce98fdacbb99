"""Count this process's work in metrics of prometheus_client's default registry.

Labels have few values by design: aliases of accounts, the event types and kinds that this version knows ("other" for
the rest), reasons, and requests without ids in their paths.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from prometheus_client import Counter, Gauge, Histogram

from payments_integration import conf, telemetry
from payments_integration.enums import EVENT_TYPES, Kind
from payments_integration.models import Event

_OTHER = "other"
#: The reasons why the webhook view refuses a delivery: its own, and the reasons of ``SignatureError``.
REFUSALS = (
    "length",
    "too_large",
    "read_before",
    "in_transaction",
    "unreadable",
    "header",
    "time",
    "signature",
    "secret",
    "keys",
    "database",
)
_MOMENTS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_WAITS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

DELIVERIES = Counter(
    "payments_deliveries",
    "Events received, by how they came (source), their type, and the receipt: new, known or quarantined.",
    ("account", "source", "type", "receipt"),
)
REFUSED = Counter(
    "payments_deliveries_refused",
    "Deliveries that were answered 400, 413 or 503 and not stored.",
    ("account", "reason"),
)
TO_APPLIED = Histogram(
    "payments_receipt_to_applied_seconds",
    "From the receipt of an event until it is applied to the mirror.",
    ("account", "source"),
    buckets=_WAITS,
)
TO_DISPATCHED = Histogram(
    "payments_receipt_to_dispatched_seconds",
    "From the receipt of an event (source answer: from a change that an answer brought) until all handlers have run.",
    ("account", "source"),
    buckets=_WAITS,
)
HANDLERS = Histogram(
    "payments_handler_seconds",
    "How long the handlers of one event or change run, also if one of them fails.",
    ("account", "kind"),
    buckets=_MOMENTS,
)
FAILURES = Counter("payments_handler_failures", "Attempts at which a handler failed.", ("account", "kind"))
PARKED = Counter(
    "payments_parked", "Events and changes that were parked after their last attempt.", ("account", "kind")
)
WAKE_UPS = Counter(
    "payments_wake_up_failures",
    "Wake-ups that reached no worker; the schedule finds the work.",
    ("account",),
)
CALLBACKS = Counter(
    "payments_callback_failures",
    "Functions that handlers and other apps gave to on_commit, and that failed after the commit.",
    ("account",),
)
REQUESTS = Counter(
    "payments_provider_requests",
    "Requests to the provider, by operation and outcome: 2xx, 3xx, 4xx, 429, 5xx or no_answer.",
    ("account", "operation", "outcome"),
)
DURATIONS = Histogram(
    "payments_provider_request_seconds",
    "How long a request to the provider takes, until its answer or the end of its time.",
    ("account", "operation"),
    buckets=_MOMENTS,
)
LIMITED = Counter("payments_provider_rate_limited", "Requests that were answered 429.", ("account", "bucket"))
RETRIES = Counter(
    "payments_provider_retries",
    "Requests that were sent again: after a 429, or because the outcome was unknown.",
    ("account", "reason"),
)
# The provider counts per API key, over all processes, so the newest answer of any process is right.
REMAINING = Gauge(
    "payments_provider_rate_limit_remaining",
    "Requests left in the provider's present window, as its newest answer said.",
    ("account", "bucket"),
    multiprocess_mode="mostrecent",
)
LIMIT = Gauge(
    "payments_provider_rate_limit",
    "Requests that the provider allows in a window.",
    ("account", "bucket"),
    multiprocess_mode="mostrecent",
)

_KINDS = (*Kind.values, _OTHER)
_BUCKETS = ("read", "write")
_RETRIES = ("rate_limit", "unknown_outcome")


def begin_at_zero() -> None:
    """Create the counters that alerts watch for every account, because alerts do not see an increase from nothing."""
    try:
        aliases = conf.aliases()
    except ImproperlyConfigured:
        return  # the system checks report it
    for alias in aliases:
        CALLBACKS.labels(alias)
        WAKE_UPS.labels(alias)
        for counter, values in (
            (REFUSED, REFUSALS),
            (FAILURES, _KINDS),
            (PARKED, _KINDS),
            (LIMITED, _BUCKETS),
            (RETRIES, _RETRIES),
        ):
            for value in values:
                counter.labels(alias, value)


class _Observer(telemetry.Observer):
    def begun(self, activity: telemetry.Activity) -> telemetry.End | None:
        if isinstance(activity, telemetry.Exchange):
            return _timed(activity)
        if isinstance(activity, telemetry.Handling):
            began = time.perf_counter()
            handlers = HANDLERS.labels(activity.item.account, _kind(activity.item))
            return lambda _: handlers.observe(time.perf_counter() - began)
        if isinstance(activity, telemetry.Sending) and activity.is_repeated:
            RETRIES.labels(activity.operation.account, "unknown_outcome").inc()
        return None

    def happened(self, fact: telemetry.Fact) -> None:
        match fact:
            case telemetry.Received(account, source, type_, receipt):
                DELIVERIES.labels(account, source, type_ if type_ in EVENT_TYPES else _OTHER, receipt).inc()
            case telemetry.Refused(account, reason):
                REFUSED.labels(account, reason).inc()
            case telemetry.Applied(events):
                for event in events:
                    TO_APPLIED.labels(event.account, event.source).observe(_since(event.received_at))
            case telemetry.Dispatched(item):
                source, since = (
                    (item.source, item.received_at) if isinstance(item, Event) else ("answer", item.recorded_at)
                )
                TO_DISPATCHED.labels(item.account, source).observe(_since(since))
            case telemetry.DispatchFailed(item, is_parked):
                FAILURES.labels(item.account, _kind(item)).inc()
                if is_parked:
                    PARKED.labels(item.account, _kind(item)).inc()
            case telemetry.CallbackFailed(account) if account:
                CALLBACKS.labels(account).inc()
            case telemetry.WakeUpFailed(account):
                WAKE_UPS.labels(account).inc()
            case telemetry.RateLimit(account, bucket, limit, remaining):
                LIMIT.labels(account, bucket).set(limit)
                REMAINING.labels(account, bucket).set(remaining)


def _timed(exchange: telemetry.Exchange) -> telemetry.End:
    began = time.perf_counter()
    operation = f"{exchange.method} {exchange.route}"
    if exchange.retries:
        RETRIES.labels(exchange.account, "rate_limit").inc()

    def end(_: BaseException | None) -> None:
        DURATIONS.labels(exchange.account, operation).observe(time.perf_counter() - began)
        REQUESTS.labels(exchange.account, operation, _outcome(exchange.status_code)).inc()
        if exchange.status_code == 429:
            LIMITED.labels(exchange.account, "read" if exchange.method == "GET" else "write").inc()

    return end


def _outcome(status_code: int) -> str:
    if status_code in (0, 429):
        return "429" if status_code else "no_answer"
    return f"{status_code // 100}xx"


def _kind(item: Any) -> str:
    return item.object_kind if item.object_kind in Kind.values else _OTHER


def _since(at: datetime) -> float:
    return max(0.0, (timezone.now() - at).total_seconds())


OBSERVER = _Observer()
