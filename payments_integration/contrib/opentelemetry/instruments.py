"""Count and time this process's work in counters and histograms."""

from __future__ import annotations

import time

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from payments_integration import __version__, telemetry
from payments_integration.contrib.opentelemetry import attributes
from payments_integration.enums import (
    EVENT_TYPES,
    DepositReferenceStatus,
    Kind,
    PaymentStatus,
    PayoutStatus,
    RefundStatus,
)
from payments_integration.models import Event

#: The boundaries of histograms in seconds, because the SDK's own boundaries are made for milliseconds.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

#: Types of events, statuses of each kind, and "" for events in quarantine.
_STATUSES = (PaymentStatus, PayoutStatus, RefundStatus, DepositReferenceStatus)
_KNOWN = {
    "",
    *EVENT_TYPES,
    *(f"{kind} {status}" for kind in Kind.values for statuses in _STATUSES for status in statuses.values),
}


class Instruments(telemetry.Observer):
    """An observer that records metrics with the meter provider ``provider``, or with the global one if it is None."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        meter = metrics.get_meter("payments_integration", __version__, provider)
        self._received = meter.create_counter(
            "payments.events.received", "{event}", "Events that were stored, or were known before"
        )
        self._refused = meter.create_counter(
            "payments.deliveries.refused", "{delivery}", "Deliveries that were answered 400, 413 or 503"
        )
        self._dispatched = meter.create_counter(
            "payments.events.dispatched", "{event}", "Events and changes of status, by what became of their handlers"
        )
        self._callbacks = meter.create_counter(
            "payments.callbacks.failed", "{callback}", "Functions given to on_commit that failed after the commit"
        )
        self._wake_ups = meter.create_counter(
            "payments.wake_ups.failed", "{wake_up}", "Wake-ups that reached no worker; the schedule finds the work"
        )
        self._handling = meter.create_histogram(
            "payments.handler.duration", "s", "Time that the handlers of one event took",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )  # fmt: skip
        self._requests = meter.create_histogram(
            "payments.provider.request.duration", "s", "Time that one request to the provider took",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )  # fmt: skip

    def begun(self, activity: telemetry.Activity) -> telemetry.End | None:
        if not isinstance(activity, telemetry.Handling | telemetry.Exchange):
            return None
        started = time.perf_counter()

        def end(error: BaseException | None) -> None:
            seconds = time.perf_counter() - started
            error = error or getattr(activity, "refusal", None)
            failed = attributes.type_of(error) if error is not None else {}
            if isinstance(activity, telemetry.Exchange):
                self._requests.record(seconds, {**attributes.of_exchange(activity), **failed})
            else:
                self._handling.record(seconds, {**_labels(activity.item), **failed})

        return end

    def happened(self, fact: telemetry.Fact) -> None:
        match fact:
            case telemetry.Received():
                self._received.add(1, {**attributes.of_received(fact), attributes.EVENT_TYPE: _bounded(fact.type)})
            case telemetry.Refused():
                self._refused.add(1, {attributes.ACCOUNT: fact.account, "payments.reason": fact.reason})
            case telemetry.Dispatched():
                self._dispatched.add(1, {**_labels(fact.item), "payments.outcome": "done"})
            case telemetry.DispatchFailed():
                outcome = "parked" if fact.is_parked else "failed"
                self._dispatched.add(1, {**_labels(fact.item), "payments.outcome": outcome})
            case telemetry.CallbackFailed():
                self._callbacks.add(1, {attributes.ACCOUNT: fact.account, **attributes.type_of(fact.error)})
            case telemetry.WakeUpFailed():
                self._wake_ups.add(1, {attributes.ACCOUNT: fact.account, **attributes.type_of(fact.error)})


def _labels(item: Event) -> attributes.Attributes:
    """Return the labels of an item, without ids: each id would be a new series."""
    return {attributes.ACCOUNT: item.account, attributes.EVENT_TYPE: _bounded(attributes.what(item))}


def _bounded(name: str) -> str:
    """Return the name, or ``other`` if this version does not know it.

    Otherwise new types of the provider could add series without end.
    """
    return name if name in _KNOWN else "other"
