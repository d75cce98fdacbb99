"""Record a span for each activity. A handler's span continues the trace in which its event was received."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from payments_integration import __version__, telemetry
from payments_integration.contrib.opentelemetry import attributes

#: The most traces that a batch's span links to. The SDK keeps this number by default.
MAX_LINKS = 128

#: The key for the span of the delivery that is being stored.
_DELIVERY = context.create_key("payments-delivery")
_PROPAGATOR = TraceContextTextMapPropagator()


class Spans(telemetry.Observer):
    """An observer that records spans with the tracer provider ``provider``, or with the global one if it is None."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("payments_integration", __version__, provider)

    def begun(self, activity: telemetry.Activity) -> telemetry.End:
        span = self._started(activity)
        within = trace.set_span_in_context(span)
        if isinstance(activity, telemetry.Delivery):
            within = context.set_value(_DELIVERY, span, within)
        token = context.attach(within)

        def end(error: BaseException | None) -> None:
            context.detach(token)
            span.set_attributes(_attributes(activity))
            error = error or getattr(activity, "refusal", None)
            if error is not None:
                # Use neither ``record_exception`` nor a description: both store the message, and the first also the
                # traceback. A handler's exception may hold personal data.
                span.set_attributes(attributes.of_error(error))
                span.set_status(StatusCode.ERROR)
            span.end()

        return end

    def happened(self, fact: telemetry.Fact) -> None:
        delivery = context.get_value(_DELIVERY)
        if isinstance(fact, telemetry.Received) and isinstance(delivery, Span):
            delivery.set_attributes(attributes.of_received(fact))
            delivery.set_attribute(attributes.EVENT_ID, fact.event_id)

    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get("traceparent", "")

    def _started(self, activity: telemetry.Activity) -> Span:
        known = _attributes(activity)
        match activity:
            case telemetry.Delivery():
                return self._tracer.start_span("payments delivery", kind=SpanKind.CONSUMER, attributes=known)
            case telemetry.Batch():
                links = [Link(received) for received in _traces(activity.events)]
                return self._tracer.start_span("payments batch", attributes=known, links=links)
            case telemetry.Handling():
                return self._handling(activity.item, known)
            case telemetry.ServiceCall():
                return self._tracer.start_span(f"payments {activity.operation}", attributes=known)
            case telemetry.Sending():
                return self._tracer.start_span(f"payments send {activity.operation.operation}", attributes=known)
            case telemetry.Exchange():
                name = f"{activity.method} {activity.route}"
                return self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=known)

    def _handling(self, item: Any, known: dict[str, AttributeValue]) -> Span:
        """Start a child of the delivery's span, linked to the task or request in which the handlers run."""
        received, current = _read(getattr(item, "traceparent", "")), trace.get_current_span().get_span_context()
        parent, links = None, []
        if received is not None:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(received))
            if current.is_valid and current.trace_id != received.trace_id:
                links = [Link(current)]
        name = f"payments handle {attributes.what(item)}"
        return self._tracer.start_span(name, parent, SpanKind.CONSUMER, known, links)


def _attributes(activity: telemetry.Activity) -> dict[str, AttributeValue]:
    """Return the attributes that are known of an activity at this time."""
    match activity:
        case telemetry.Delivery():
            return {attributes.ACCOUNT: activity.account}
        case telemetry.Batch():
            return {attributes.EVENT_COUNT: len(activity.events)}
        case telemetry.Handling():
            return attributes.of_item(activity.item)
        case telemetry.ServiceCall():
            return {attributes.OPERATION_NAME: activity.operation, attributes.ACCOUNT: activity.account}
        case telemetry.Sending():
            return attributes.of_sending(activity)
        case telemetry.Exchange():
            return {
                **attributes.of_exchange(activity),
                "http.request.resend_count": activity.retries,
                **({attributes.REQUEST_ID: activity.request_id} if activity.request_id else {}),
            }


def _traces(events: Iterable[Any]) -> list[SpanContext]:
    """Return the distinct spans in which the events were received, in their order, at most ``MAX_LINKS``."""
    distinct = list(dict.fromkeys(event.traceparent for event in events if event.traceparent))[:MAX_LINKS]
    return [received for text in distinct if (received := _read(text)) is not None]


def _read(traceparent: str) -> SpanContext | None:
    """Return the span that a stored ``traceparent`` names, or None if it is empty or malformed."""
    extracted = _PROPAGATOR.extract({"traceparent": traceparent}, Context())
    found = trace.get_current_span(extracted).get_span_context()
    return found if found.is_valid else None
