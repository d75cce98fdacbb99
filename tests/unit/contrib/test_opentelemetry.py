"""Spans and metrics as OpenTelemetry's SDK records them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from payments_integration import inbox, services, telemetry
from payments_integration.contrib.opentelemetry.apps import EXTRA, OpenTelemetryConfig
from payments_integration.contrib.opentelemetry.instruments import Instruments
from payments_integration.contrib.opentelemetry.spans import MAX_LINKS, Spans
from payments_integration.exceptions import NotFound, OutcomeUnknown, ProviderError
from payments_integration.handlers import on_event, on_status
from payments_integration.inbox import processing
from payments_integration.models import Event, Operation, Payment
from payments_integration.sandbox import Fault
from payments_integration.signatures import HEADER, sign
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.factories import body

NAME = "payments_integration.contrib.opentelemetry"
PAYMENT = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
PAYER = {"name": "Rosa Luna Vega", "email": "rosa@luna.example", "document": {"type": "RUT", "number": "11111111-1"}}
SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-2] + "00"


class Traces:
    """The spans that ended, in their order, and a tracer of the project's."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.project = self.provider.get_tracer("project")

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.all(name)
        return span


@pytest.fixture
def traces() -> Iterator[Traces]:
    traces = Traces()
    observer = Spans(traces.provider)
    telemetry.observe(observer)
    yield traces
    telemetry.forget(observer)
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.fixture
def points() -> Iterator[Any]:
    """Reads the metrics: by name, each point with its attributes."""
    reader = InMemoryMetricReader()
    observer = Instruments(MeterProvider([reader]))
    telemetry.observe(observer)

    def read() -> dict[str, list[tuple[dict[str, Any], Any]]]:
        data = reader.get_metrics_data()
        found = [
            each for resource in data.resource_metrics for scope in resource.scope_metrics for each in scope.metrics
        ]
        return {
            each.name: [(dict(point.attributes or {}), point) for point in each.data.data_points] for each in found
        }

    yield read
    telemetry.forget(observer)


def deliver(client: Client, event: dict[str, Any], secret: str = "whsec_default") -> int:
    raw = body(event)
    answer = client.post("/payments/webhook/", raw, "application/json", headers={HEADER: sign(raw, secret)})
    return int(answer.status_code)


def of(span: ReadableSpan) -> SpanContext:
    assert span.context is not None
    return span.context


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_handlers_continue_the_trace_of_the_delivery(traces: Traces, client: Client) -> None:
    seen: list[SpanContext] = []

    @on_event("payment.*")
    def handler(**kwargs: object) -> None:
        seen.append(trace.get_current_span().get_span_context())

    event = factories.life()[0]
    with traces.project.start_as_current_span("POST webhook") as request:
        assert deliver(client, event) == 200
    with traces.project.start_as_current_span("task") as task:
        inbox.process()
        assert inbox.dispatch() == 1
    delivery, handling = traces.one("payments delivery"), traces.one(f"payments handle {event['type']}")
    trace_id = of(delivery).trace_id
    assert (trace_id, delivery.parent and delivery.parent.span_id) == (
        request.get_span_context().trace_id, request.get_span_context().span_id,
    )  # fmt: skip
    stored = Event.objects.get().traceparent
    assert stored == f"00-{trace_id:032x}-{of(delivery).span_id:016x}-{of(delivery).trace_flags:02x}"
    assert len(stored) == 55
    assert handling.parent is not None
    assert (of(handling).trace_id, handling.parent.span_id) == (trace_id, of(delivery).span_id)
    assert [link.context for link in handling.links] == [task.get_span_context()]
    assert (delivery.kind, handling.kind) == (SpanKind.CONSUMER, SpanKind.CONSUMER)
    assert seen == [of(handling)]
    assert attributes(delivery) == {
        "payments.account": "default",
        "payments.event.id": event["id"],
        "payments.event.type": event["type"],
        "payments.event.source": "webhook",
        "payments.event.receipt": "new",
    }
    assert attributes(handling) == {
        "payments.account": "default",
        "payments.event.id": event["id"],
        "payments.event.type": event["type"],
        "payments.object.kind": "payment",
        "payments.object.id": event["data"]["id"],
    }
    batch = traces.one("payments batch")
    assert batch.parent is not None
    assert batch.parent.span_id == task.get_span_context().span_id
    assert [link.context.span_id for link in batch.links] == [of(delivery).span_id]
    assert attributes(batch) == {"payments.batch.events": 1}


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_handlers_in_the_request_of_the_delivery_have_no_second_link(traces: Traces, client: Client) -> None:
    @on_event("payment.*")
    def handler(**kwargs: object) -> None: ...

    with traces.project.start_as_current_span("POST webhook"):
        deliver(client, factories.life()[0])
        inbox.process()
        inbox.dispatch()
    [handling] = [span for span in traces.exporter.get_finished_spans() if span.name.startswith("payments handle")]
    assert handling.links == ()
    assert len({of(span).trace_id for span in traces.exporter.get_finished_spans()}) == 1


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_the_batch_links_to_every_trace_up_to_a_bound(traces: Traces, client: Client) -> None:
    for number in range(6):
        deliver(client, factories.life(f"pay_{number}")[0])
    inbox.process()
    deliveries = traces.all("payments delivery")
    batch = traces.one("payments batch")
    assert {link.context.span_id for link in batch.links} == {of(span).span_id for span in deliveries}
    assert len(batch.links) == 6

    rows = [Event(traceparent=f"00-{number:032x}-{number:016x}-01") for number in range(1, 2 * MAX_LINKS)]
    with telemetry.during(telemetry.Batch([*rows, *rows])):
        pass
    bounded = traces.all("payments batch")[1]
    assert [link.context.trace_id for link in bounded.links] == list(range(1, MAX_LINKS + 1))
    assert attributes(bounded) == {"payments.batch.events": 2 * len(rows)}


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
@pytest.mark.parametrize("flags", [TraceFlags.DEFAULT, TraceFlags.SAMPLED])
def test_a_trace_that_is_not_sampled_stays_so(traces: Traces, client: Client, flags: int) -> None:
    remote = SpanContext(
        0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, is_remote=True, trace_flags=TraceFlags(flags)
    )
    seen: list[SpanContext] = []

    @on_event("payment.*")
    def handler(**kwargs: object) -> None:
        seen.append(trace.get_current_span().get_span_context())

    with trace.use_span(trace.NonRecordingSpan(remote)):
        deliver(client, factories.life()[0])
    assert Event.objects.get().traceparent.endswith(f"-{flags:02x}")
    inbox.process()
    inbox.dispatch()
    assert [(span.trace_id, span.trace_flags) for span in seen] == [(remote.trace_id, flags)]
    assert bool(traces.all("payments delivery")) == bool(flags)
    assert bool([name for name in traces.names if name.startswith("payments handle")]) == bool(flags)


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_without_an_active_trace_nothing_is_stored_and_handlers_begin_one(traces: Traces) -> None:
    @on_event("payment.*")
    def handler(**kwargs: object) -> None: ...

    event = factories.life()[0]
    inbox.receive("default", body(event))
    assert Event.objects.get().traceparent == ""
    inbox.process()
    inbox.dispatch()
    assert traces.one(f"payments handle {event['type']}").parent is None
    assert traces.one("payments batch").links == ()


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
@pytest.mark.parametrize("stored", ["nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", SAMPLED[:-3], "ñ" * 55])
def test_a_malformed_traceparent_is_ignored(traces: Traces, stored: str) -> None:
    @on_event("payment.*")
    def handler(**kwargs: object) -> None: ...

    inbox.receive("default", body(factories.life()[0]))
    Event.objects.update(traceparent=stored)
    inbox.process()
    with traces.project.start_as_current_span("task") as task:
        assert inbox.dispatch() == 1
    [handling] = [span for span in traces.exporter.get_finished_spans() if span.name.startswith("payments handle")]
    assert handling.parent is not None
    assert handling.parent.span_id == task.get_span_context().span_id
    assert traces.one("payments batch").links == ()


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_the_exception_of_a_handler_is_recorded_without_its_text(traces: Traces, caplog: Any) -> None:
    @on_event("payment.*")
    def handler(**kwargs: object) -> None:
        raise LookupError("no customer rosa@luna.example")

    event = factories.life()[0]
    inbox.receive("default", body(event))
    inbox.process()
    inbox.dispatch()
    handling = traces.one(f"payments handle {event['type']}")
    assert handling.status.status_code == StatusCode.ERROR
    assert handling.status.description is None
    assert handling.events == ()
    assert attributes(handling)["error.type"] == "LookupError"
    assert "rosa" not in handling.to_json()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_a_call_spans_its_request(traces: Traces) -> None:
    with ProviderSandbox():
        payment = services.create_payment(**PAYMENT, payer=PAYER, merchant_reference="order of Rosa")
        services.cancel_payment(payment)
    operation = Operation.objects.get(operation="cancel_payment")
    call, sending = traces.one("payments cancel_payment"), traces.one("payments send cancel_payment")
    exchange = traces.one("POST /payments/{id}/cancel")
    assert sending.parent is not None
    assert exchange.parent is not None
    assert (sending.parent.span_id, exchange.parent.span_id) == (of(call).span_id, of(sending).span_id)
    assert len({of(span).trace_id for span in (call, sending, exchange)}) == 1
    assert attributes(call) == {"payments.operation.name": "cancel_payment", "payments.account": "default"}
    assert attributes(sending) == {
        "payments.account": "default",
        "payments.operation.id": operation.pk,
        "payments.operation.name": "cancel_payment",
        "payments.operation.is_repeated": False,
    }
    assert exchange.kind == SpanKind.CLIENT
    assert attributes(exchange) == {
        "payments.account": "default",
        "http.request.method": "POST",
        "http.request.resend_count": 0,
        "http.response.status_code": 200,
        "url.template": "/payments/{id}/cancel",
    }
    shown = "".join(span.to_json() for span in traces.exporter.get_finished_spans())
    assert not [text for text in ("Rosa", "rosa", "11111111") if text in shown]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_a_refusal_names_the_request_and_the_code(traces: Traces, points: Any) -> None:
    with ProviderSandbox() as sandbox:
        with pytest.raises(NotFound):
            services.refresh(Payment(id="pay_of_nobody", account="default"))
        sandbox.engine.faults.add(Fault("reset", operation="create_payment", work=True))
        with pytest.raises(OutcomeUnknown):
            services.create_payment(**PAYMENT, payer=PAYER)
    refused = attributes(traces.one("GET /payments/{id}"))
    assert traces.one("GET /payments/{id}").status.status_code == StatusCode.ERROR
    assert refused["error.type"] == "payments_integration.exceptions.NotFound"
    assert refused["payments.error.code"] == "resource_not_found"
    assert refused["http.response.status_code"] == 404
    assert refused["payments.request.id"].startswith("req_")
    lost = traces.one("POST /payments")
    assert lost.status.status_code == StatusCode.ERROR
    assert attributes(lost)["error.type"] == "payments_integration.exceptions.NoAnswer"
    assert "http.response.status_code" not in attributes(lost)
    call = traces.one("payments create_payment")
    assert attributes(call)["error.type"] == "payments_integration.exceptions.OutcomeUnknown"
    requests = [labels for labels, _ in points()["payments.provider.request.duration"]]
    assert {
        "payments.account": "default", "http.request.method": "GET", "url.template": "/payments/{id}",
        "http.response.status_code": 404, "error.type": "payments_integration.exceptions.NotFound",
    } in requests  # fmt: skip
    assert {
        "payments.account": "default", "http.request.method": "POST", "url.template": "/payments",
        "error.type": "payments_integration.exceptions.NoAnswer",
    } in requests  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_the_provider_error_of_a_call_is_recorded_as_its_code(traces: Traces) -> None:
    with ProviderSandbox() as sandbox:
        sandbox.engine.faults.add(Fault("error", operation="create_payment", status=422, code="insufficient_balance"))
        with pytest.raises(ProviderError) as raised:
            services.create_payment(**PAYMENT)
    for name in ("payments create_payment", "payments send create_payment"):
        assert attributes(traces.one(name))["payments.error.code"] == raised.value.code


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_each_attempt_of_a_batch_is_a_span(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, attempts = processing._apply, iter([OperationalError("database is locked")])

    def conflict(events: list[Event]) -> set[str]:
        for error in attempts:
            raise error
        return apply(events)

    monkeypatch.setattr(processing, "_apply", conflict)
    inbox.receive("default", body(factories.life()[0]))
    assert inbox.process() == 1
    first, second = traces.all("payments batch")
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert attributes(first)["error.type"] == "django.db.utils.OperationalError"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_a_change_that_an_answer_brought_is_handled_in_a_trace(traces: Traces) -> None:
    @on_status(Payment, "canceled")
    def handler(payment: Payment, **kwargs: object) -> None: ...

    with ProviderSandbox():
        payment = services.cancel_payment(services.create_payment(**PAYMENT))
        inbox.dispatch()
    handling = traces.one("payments handle payment canceled")
    assert attributes(handling) == {
        "payments.account": "default", "payments.object.kind": "payment", "payments.object.id": payment.pk,
    }  # fmt: skip


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_metrics_count_deliveries_and_time_handlers(points: Any, client: Client) -> None:
    @on_event("payment.*")
    def handler(event: Event, **kwargs: object) -> None:
        if event.pk == second["id"]:
            raise RuntimeError("rosa@luna.example")

    first, second = factories.life()[:2]
    assert deliver(client, first) == deliver(client, first) == deliver(client, second) == 200
    assert deliver(client, first, secret="whsec_of_another") == 400
    inbox.process()
    inbox.dispatch()
    assert deliver(client, {**first, "id": "evt_new", "type": "payment.of_next_year"}) == 200
    found = points()
    received = {"payments.account": "default", "payments.event.source": "webhook"}
    assert [(labels, point.value) for labels, point in found["payments.events.received"]] == [
        ({**received, "payments.event.type": first["type"], "payments.event.receipt": "new"}, 1),
        ({**received, "payments.event.type": first["type"], "payments.event.receipt": "known"}, 1),
        ({**received, "payments.event.type": second["type"], "payments.event.receipt": "new"}, 1),
        ({**received, "payments.event.type": "other", "payments.event.receipt": "new"}, 1),
    ]
    assert [(labels, point.value) for labels, point in found["payments.deliveries.refused"]] == [
        ({"payments.account": "default", "payments.reason": "signature"}, 1)
    ]
    done, failed = ({"payments.account": "default", "payments.event.type": each["type"]} for each in (first, second))
    assert [(labels, point.value) for labels, point in found["payments.events.dispatched"]] == [
        ({**done, "payments.outcome": "done"}, 1),
        ({**failed, "payments.outcome": "failed"}, 1),
    ]
    durations = found["payments.handler.duration"]
    assert [labels for labels, _ in durations] == [done, {**failed, "error.type": "RuntimeError"}]
    assert [point.count for _, point in durations] == [1, 1]
    assert durations[0][1].explicit_bounds[-1] == 30


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_tracing_takes_no_statement(client: Client) -> None:
    @on_event("payment.*")
    def handler(**kwargs: object) -> None: ...

    def run(payment_id: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            deliver(client, factories.life(payment_id)[0])
            inbox.process()
            assert inbox.dispatch() == 1
        return len(queries)

    run("pay_1")
    without = run("pay_2")
    observers = [Spans(Traces().provider), Instruments(MeterProvider([InMemoryMetricReader()]))]
    for observer in observers:
        telemetry.observe(observer)
    try:
        assert run("pay_3") == without
    finally:
        for observer in observers:
            telemetry.forget(observer)


def test_the_page_has_every_attribute_and_metric() -> None:
    root = Path(__file__).resolve().parents[3]
    package = root / "payments_integration" / "contrib" / "opentelemetry"
    code = "\n".join(path.read_text() for path in package.glob("*.py"))
    page = (root / "docs" / "monitoring.md").read_text()
    names = r"\b(?:payments|http|url|error)\.[a-z_]+(?:\.[a-z_]+)*"
    assert set(re.findall(f"`({names})`", page)) == set(re.findall(f'"({names})"', code))


def test_the_app_connects_both_observers() -> None:
    before = list(telemetry._observers)
    OpenTelemetryConfig.create(NAME).ready()
    added = [observer for observer in telemetry._observers if observer not in before]
    try:
        assert [type(observer) for observer in added] == [Spans, Instruments]
        # Without an SDK: nothing is recorded, and nothing fails.
        with telemetry.during(telemetry.Delivery("default")):
            assert telemetry.traceparent() == ""
    finally:
        for observer in added:
            telemetry.forget(observer)


def test_the_app_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OpenTelemetryConfig.create(NAME)
    for module in ("spans", "instruments", "attributes"):
        monkeypatch.delitem(sys.modules, f"{NAME}.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImproperlyConfigured) as raised:
        config.ready()
    assert EXTRA in str(raised.value)
