"""What observers are told of each flow, and that they can neither change nor stop it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from payments_integration import inbox, services, telemetry
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.handlers import on_event
from payments_integration.models import Event, Operation
from payments_integration.sandbox import Fault
from payments_integration.signatures import HEADER, sign
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.factories import body, rows

SECRET = "whsec_test"
PAYMENT = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

Ended = tuple[telemetry.Activity, BaseException | None]


class Recorder(telemetry.Observer):
    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self.facts: list[telemetry.Fact] = []
        self.open: list[telemetry.Activity] = []
        self.within: list[tuple[str, ...]] = []

    def begun(self, activity: telemetry.Activity) -> telemetry.End:
        self.open.append(activity)
        self.within.append(tuple(type(each).__name__ for each in self.open))

        def end(error: BaseException | None) -> None:
            assert self.open.pop() is activity
            self.ended.append((activity, error))

        return end

    def happened(self, fact: telemetry.Fact) -> None:
        self.facts.append(fact)

    def traceparent(self) -> str:
        return TRACE

    def of(self, kind: type[Any]) -> list[Any]:
        return [each for each in [*self.facts, *(activity for activity, _ in self.ended)] if isinstance(each, kind)]


class Broken(telemetry.Observer):
    def begun(self, activity: telemetry.Activity) -> telemetry.End:
        if isinstance(activity, telemetry.Batch):
            raise ValueError("begun")

        def end(error: BaseException | None) -> None:
            raise ValueError("end")

        return end

    def happened(self, fact: telemetry.Fact) -> None:
        raise ValueError("happened")

    def traceparent(self) -> str:
        raise ValueError("traceparent")


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    observer = Recorder()
    telemetry.observe(observer)
    yield observer
    telemetry.forget(observer)


@pytest.fixture
def broken() -> Iterator[None]:
    observer = Broken()
    telemetry.observe(observer)
    yield
    telemetry.forget(observer)


def deliver(client: Client, raw: bytes, secret: str = SECRET, header: str | None = None) -> int:
    value = sign(raw, secret) if header is None else header
    answer = client.post("/payments/webhook/", raw, "application/json", headers={HEADER: value})
    return int(answer.status_code)


@pytest.fixture
def secret(settings: Any) -> None:
    account = {**settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"], "WEBHOOK_SECRETS": [SECRET]}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": account}}


@pytest.mark.django_db
@pytest.mark.usefixtures("woken", "secret")
def test_a_delivery_is_followed_from_the_view_to_its_handlers(recorder: Recorder, client: Client) -> None:
    seen: list[str] = []

    @on_event("payment.*")
    def handler(event: Event, **kwargs: object) -> None:
        seen.append(event.traceparent)

    [first, second, *_] = factories.life()
    assert deliver(client, body(first)) == deliver(client, body(first)) == 200
    inbox.receive_many("default", [body(second), body(first)], source="reconciliation")
    assert recorder.of(telemetry.Received) == [
        telemetry.Received("default", "webhook", first["type"], "new", first["id"]),
        telemetry.Received("default", "webhook", first["type"], "known", first["id"]),
        telemetry.Received("default", "reconciliation", second["type"], "new", second["id"]),
        telemetry.Received("default", "reconciliation", first["type"], "known", first["id"]),
    ]
    inbox.process()
    inbox.release("default")
    assert inbox.dispatch() == 2
    assert seen == [TRACE, TRACE]
    [applied] = recorder.of(telemetry.Applied)
    assert [event.pk for event in applied.events] == [first["id"], second["id"]]
    assert [fact.item.pk for fact in recorder.of(telemetry.Dispatched)] == [first["id"], second["id"]]
    assert [type(activity).__name__ for activity, error in recorder.ended if error is None] == [
        "Delivery", "Delivery", "Batch", "Handling", "Handling",
    ]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_what_a_receiver_raises_ends_its_activity_and_is_a_fact_after_the_rollback(recorder: Recorder) -> None:
    @on_event("payment.*")
    def handler(**kwargs: object) -> None:
        raise RuntimeError("out of stock")

    inbox.receive("default", body(factories.life()[0]))
    inbox.process()
    inbox.dispatch()
    [error] = [error for activity, error in recorder.ended if isinstance(activity, telemetry.Handling)]
    assert isinstance(error, RuntimeError)
    assert [fact.is_parked for fact in recorder.of(telemetry.DispatchFailed)] == [False]
    assert recorder.of(telemetry.Dispatched) == []


@pytest.mark.django_db
@pytest.mark.usefixtures("woken", "secret")
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", "header"),
        ("t=1", "header"),
        ("t=1,v1=00", "time"),
        (None, "signature"),
    ],
)
def test_a_refused_delivery_has_a_reason(recorder: Recorder, client: Client, header: str | None, reason: str) -> None:
    assert deliver(client, b"{}", secret="whsec_other", header=header) == 400
    assert recorder.facts == [telemetry.Refused("default", reason)]
    assert recorder.ended == []


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_a_delivery_is_refused_for_its_size_and_for_want_of_a_secret(
    recorder: Recorder, client: Client, secret: None, settings: Any
) -> None:
    assert deliver(client, b"x" * (1024 * 1024 + 1)) == 413
    account = {**settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"], "WEBHOOK_SECRETS": []}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": account}}
    assert deliver(client, b"{}") == 400
    assert [fact.reason for fact in recorder.of(telemetry.Refused)] == ["too_large", "secret"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_a_call_is_followed_to_its_request(recorder: Recorder) -> None:
    with ProviderSandbox(rate_limits=True):
        payment = services.create_payment(**PAYMENT)
        services.cancel_payment(payment)
    calls = recorder.of(telemetry.ServiceCall)
    assert [(call.operation, call.account) for call in calls] == [
        ("create_payment", "default"), ("cancel_payment", "default"),
    ]  # fmt: skip
    assert [(sent.operation, sent.is_repeated) for sent in recorder.of(telemetry.Sending)] == [
        (operation, False) for operation in Operation.objects.order_by("created_at")
    ]
    exchanges = [each for each in recorder.of(telemetry.Exchange) if each.method == "POST"]
    assert [(each.route, each.status_code) for each in exchanges] == [
        ("/payments", 201),
        ("/payments/{id}/cancel", 200),
    ]
    assert ("ServiceCall", "Sending", "Exchange") in recorder.within
    limits = {(fact.bucket, fact.remaining < fact.limit) for fact in recorder.of(telemetry.RateLimit)}
    # A process that has had an answer just now does not read before it writes.
    assert {("write", True)} <= limits <= {("read", True), ("write", True)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_a_request_without_an_answer_and_one_after_a_429_can_be_told(recorder: Recorder) -> None:
    with ProviderSandbox() as sandbox:
        sandbox.engine.faults.add(Fault("rate_limited", operation="create_payment", retry_after="1"))
        services.create_payment(**PAYMENT)
        sandbox.engine.faults.add(Fault("reset", operation="create_payment", work=True))
        with pytest.raises(OutcomeUnknown):
            services.create_payment(**PAYMENT)
    exchanges = [each for each in recorder.of(telemetry.Exchange) if each.method == "POST"]
    assert [(each.status_code, each.retries) for each in exchanges] == [(429, 0), (201, 1), (0, 0)]
    assert [bool(each.request_id) for each in exchanges] == [True, False, False]


@pytest.mark.django_db
@pytest.mark.usefixtures("woken", "broken", "secret")
def test_an_observer_that_fails_stops_nothing(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    @on_event("payment.*")
    def handler(event: Event, **kwargs: object) -> None:
        seen.append(event.traceparent)

    assert deliver(client, body(factories.life()[0])) == 200
    inbox.process()
    assert inbox.dispatch() == 1
    assert seen == [""]
    raised = {str(record.exc_info[1]) for record in caplog.records if record.exc_info}
    assert raised == {"begun", "end", "happened", "traceparent"}


@pytest.mark.parametrize("found", ["x" * 300, TRACE.upper(), TRACE + "-more", 1])
def test_a_malformed_trace_is_not_stored(recorder: Recorder, monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    """It would be too long for its column, so that no delivery could be stored."""
    assert telemetry.traceparent() == TRACE
    monkeypatch.setattr(recorder, "traceparent", lambda: found)
    assert telemetry.traceparent() == ""


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_each_body_is_told_as_it_is_counted(recorder: Recorder) -> None:
    [first, second, *_] = factories.life()
    other = {**first, "data": {**first["data"], "amount": 1}}
    inbox.receive("default", body(first))
    counts = inbox.receive_many("default", [body(other), body(second), body(second), b"[]"], source="reconciliation")
    told = recorder.of(telemetry.Received)[1:]
    assert Counter(fact.receipt for fact in told) == {receipt.value: count for receipt, count in counts.items()}
    assert Counter((fact.receipt, fact.type) for fact in told) == {
        ("new", second["type"]): 1, ("known", second["type"]): 1, ("quarantined", ""): 2,
    }  # fmt: skip
    inbox.receive("default", body(other))
    [*_, again] = recorder.of(telemetry.Received)
    assert (again.receipt, again.type, again.event_id[:11]) == ("quarantined", "", "quarantine_")


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_an_event_that_goes_to_quarantine_is_not_told_as_applied(recorder: Recorder) -> None:
    [first, second, *_] = factories.life()
    foreign = factories.event(factories.payment(id="pay_elsewhere"))
    rows.payment(id="pay_elsewhere", account="second")
    for item in (first, second, foreign):
        inbox.receive("default", body(item))
    assert inbox.process() == 3
    [applied] = recorder.of(telemetry.Applied)
    assert [event.pk for event in applied.events] == [first["id"], second["id"]]


def test_an_observer_is_told_once_until_it_is_forgotten(recorder: Recorder) -> None:
    telemetry.observe(recorder)
    telemetry.happened(telemetry.Refused("default", "time"))
    telemetry.forget(recorder)
    telemetry.forget(recorder)
    telemetry.happened(telemetry.Refused("default", "time"))
    assert len(recorder.facts) == 1
