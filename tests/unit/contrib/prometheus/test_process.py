"""What each process counts, and with which labels."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client import REGISTRY, generate_latest

from payments_integration import inbox, services, telemetry
from payments_integration.contrib.prometheus import process
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.handlers import on_event, on_status
from payments_integration.models import Event, EventState, ObjectDispatch, Payment, StatusChange
from payments_integration.sandbox import Fault
from payments_integration.signatures import HEADER, sign
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.factories import body, rows

SECRET = "whsec_default"
PAYMENT = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}


class Counts:
    """How much each sample has grown since the test began."""

    def __init__(self) -> None:
        self._before = self._now()

    @staticmethod
    def _now() -> dict[tuple[Any, ...], float]:
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in REGISTRY.collect()
            if family.name.startswith("payments_")
            for sample in family.samples
            if not sample.name.endswith(("_created", "_bucket", "_sum"))
        }

    def grown(self, *names: str) -> dict[tuple[Any, ...], float]:
        changed = {key: value - self._before.get(key, 0) for key, value in self._now().items()}
        return {
            (name.removeprefix("payments_"), *labels): value
            for (name, *labels), value in changed.items()
            if value and (not names or name.removeprefix("payments_") in names)
        }


@pytest.fixture(autouse=True)
def counts() -> Iterator[Counts]:
    telemetry.observe(process.OBSERVER)
    yield Counts()
    telemetry.forget(process.OBSERVER)


def deliver(client: Client, raw: bytes, *, secret: str = SECRET, path: str = "/payments/webhook/") -> int:
    answer = client.post(path, raw, "application/json", headers={HEADER: sign(raw, secret)})
    return int(answer.status_code)


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_an_event_is_counted_from_its_delivery_to_its_handlers(counts: Counts, client: Client) -> None:
    @on_event("payment.*")
    def handler(**_: object) -> None: ...

    [first, second, *_] = factories.life()
    assert deliver(client, body(first)) == deliver(client, body(first)) == 200
    inbox.receive_many("default", [body(second)], source="reconciliation")
    assert counts.grown() == {
        ("deliveries_total", "default", "webhook", first["type"], "new"): 1,
        ("deliveries_total", "default", "webhook", first["type"], "known"): 1,
        ("deliveries_total", "default", "reconciliation", second["type"], "new"): 1,
    }
    inbox.process()
    inbox.release("default")
    assert inbox.dispatch() == 2
    assert counts.grown(
        "receipt_to_applied_seconds_count", "receipt_to_dispatched_seconds_count", "handler_seconds_count"
    ) == {
        ("receipt_to_applied_seconds_count", "default", "webhook"): 1,
        ("receipt_to_applied_seconds_count", "default", "reconciliation"): 1,
        ("receipt_to_dispatched_seconds_count", "default", "webhook"): 1,
        ("receipt_to_dispatched_seconds_count", "default", "reconciliation"): 1,
        ("handler_seconds_count", "default", "payment"): 2,
    }


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_types_and_kinds_of_the_future_are_one_label(counts: Counts, client: Client) -> None:
    for number in range(3):
        event = factories.event(factories.payment(id=f"pay_{number}"), type=f"payment.new_word_{number}")
        assert deliver(client, body(event)) == 200
    assert deliver(client, b"[]") == 200
    assert counts.grown() == {
        ("deliveries_total", "default", "webhook", "other", "new"): 3,
        ("deliveries_total", "default", "webhook", "other", "quarantined"): 1,
    }
    process.OBSERVER.happened(telemetry.DispatchFailed(rows.event(object_kind="parcel"), is_parked=True))
    assert counts.grown("handler_failures_total", "parked_total") == {
        ("handler_failures_total", "default", "other"): 1,
        ("parked_total", "default", "other"): 1,
    }


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_refusals_have_a_reason_and_an_unknown_account_has_no_label(counts: Counts, client: Client) -> None:
    assert deliver(client, b"{}", secret="whsec_wrong") == 400
    assert deliver(client, b"{}", secret="whsec_wrong", path="/payments/webhook/second/") == 400
    assert deliver(client, b"{}", path="/payments/webhook/anything-a-stranger-types/") == 404
    assert deliver(client, b"x" * (1024 * 1024 + 1)) == 413
    assert counts.grown() == {
        ("deliveries_refused_total", "default", "signature"): 1,
        ("deliveries_refused_total", "second", "signature"): 1,
        ("deliveries_refused_total", "default", "too_large"): 1,
    }
    assert b"stranger" not in generate_latest(REGISTRY)


@pytest.mark.django_db
@pytest.mark.usefixtures("woken")
def test_failures_of_handlers_and_what_is_parked(counts: Counts, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "RECEIVER_RETRIES": (1,)}

    @on_event("payment.*")
    def handler(**_: object) -> None:
        raise RuntimeError("out of stock")

    inbox.receive("default", body(factories.life()[0]))
    inbox.process()
    inbox.dispatch()
    assert counts.grown("handler_failures_total", "parked_total") == {
        ("handler_failures_total", "default", "payment"): 1
    }
    Event.objects.update(attempts=1)
    ObjectDispatch.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1))
    inbox.dispatch()
    assert Event.objects.get().state == EventState.PARKED
    assert counts.grown("handler_failures_total", "parked_total", "receipt_to_dispatched_seconds_count") == {
        ("handler_failures_total", "default", "payment"): 2,
        ("parked_total", "default", "payment"): 1,
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_requests_to_the_provider_by_operation_and_outcome(counts: Counts) -> None:
    with ProviderSandbox(rate_limits=True) as sandbox:
        sandbox.engine.faults.add(Fault("rate_limited", operation="create_payment", retry_after="1"))
        payment = services.create_payment(**PAYMENT)
        services.cancel_payment(payment)
        sandbox.engine.faults.add(Fault("reset", operation="create_payment", work=True))
        with pytest.raises(OutcomeUnknown) as raised:
            services.create_payment(**PAYMENT)
        services.retry(raised.value.operation)
    posts = {key: value for key, value in counts.grown("provider_requests_total").items() if "POST" in key[2]}
    assert posts == {
        ("provider_requests_total", "default", "POST /payments", "429"): 1,
        ("provider_requests_total", "default", "POST /payments", "2xx"): 2,
        ("provider_requests_total", "default", "POST /payments", "no_answer"): 1,
        ("provider_requests_total", "default", "POST /payments/{id}/cancel", "2xx"): 1,
    }
    assert counts.grown("provider_rate_limited_total", "provider_retries_total") == {
        ("provider_rate_limited_total", "default", "write"): 1,
        ("provider_retries_total", "default", "rate_limit"): 1,
        ("provider_retries_total", "default", "unknown_outcome"): 1,
    }
    [seconds] = {
        value
        for key, value in counts.grown("provider_request_seconds_count").items()
        if key[2] == "POST /payments/{id}/cancel"
    }
    assert seconds == 1
    limits = {
        (sample.name, sample.labels["bucket"]): sample.value
        for family in REGISTRY.collect()
        if family.name.startswith("payments_provider_rate_limit") and family.type == "gauge"
        for sample in family.samples
    }
    for bucket in ("read", "write"):
        name = "payments_provider_rate_limit"
        assert 0 < limits[f"{name}_remaining", bucket] < limits[name, bucket]
    text = generate_latest(REGISTRY).decode()
    assert payment.pk not in text
    assert str(payment.merchant_reference) not in text


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("woken")
def test_a_change_that_an_answer_brought_is_dispatched_as_such(counts: Counts) -> None:
    @on_status(Payment, "created", "requires_action")
    def handler(payment: Payment, **_: object) -> None: ...

    with ProviderSandbox():
        services.create_payment(**PAYMENT)
    assert StatusChange.objects.get().event_id is None
    inbox.dispatch()
    assert counts.grown("receipt_to_dispatched_seconds_count", "handler_seconds_count") == {
        ("receipt_to_dispatched_seconds_count", "default", "answer"): 1,
        ("handler_seconds_count", "default", "payment"): 1,
    }


def test_counters_of_alerts_begin_at_zero(settings: Any) -> None:
    process.begin_at_zero()
    text = generate_latest(REGISTRY).decode()
    for alias in ("default", "second"):
        for reason in process.REFUSALS:
            assert f'payments_deliveries_refused_total{{account="{alias}",reason="{reason}"}}' in text
        assert f'payments_parked_total{{account="{alias}",kind="other"}}' in text
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": "wrong"}
    process.begin_at_zero()  # the system checks report it
