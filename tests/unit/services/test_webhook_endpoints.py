"""Secrets go from the answer into the encrypted store and, once, to the caller."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core import serializers
from django.utils import timezone

from payments_integration import projection, services
from payments_integration.exceptions import NotFound, OutcomeUnknown
from payments_integration.models import Operation, OperationState, WebhookEndpoint
from tests.fake_provider import ENDPOINT, Fake, Lost, endpoint, make_due, not_found, only_operation, refusal, timeout


def stored(row: WebhookEndpoint) -> tuple[str, ...]:
    projection.forget_secrets()
    return projection.active_secrets(row.account)


def everything() -> str:
    return serializers.serialize("json", [*Operation.objects.all(), *WebhookEndpoint.objects.all()])


@pytest.mark.case(85)
@pytest.mark.promise(7)
def test_a_created_endpoint_is_returned_with_its_secret(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        row = services.create_webhook_endpoint(**ENDPOINT, idempotency_key="k1")
    secret = fake.objects[row.pk].secret
    assert vars(row)["secret"] == secret
    assert secret in stored(row)
    assert json.loads(fake.calls[0].body) == ENDPOINT
    for text in (everything(), repr(row), str(row), repr(only_operation()), caplog.text):
        assert secret not in text
    assert "secret" not in [field.name for field in WebhookEndpoint._meta.get_fields()]
    again = services.create_webhook_endpoint(**ENDPOINT, idempotency_key="k1")
    assert getattr(again, "secret", None) is None


def test_repeated_event_types_are_sent_once(fake: Fake) -> None:
    services.create_webhook_endpoint(
        url="http://localhost:8000/", events=("payout.failed", "payment.succeeded", "payout.failed")
    )
    assert json.loads(fake.calls[0].body)["events"] == ["payout.failed", "payment.succeeded"]
    services.create_webhook_endpoint(url="http://localhost:8000/", events={"payout.failed", "payment.created"})
    assert json.loads(fake.calls[1].body)["events"] == ["payment.created", "payout.failed"]


def test_a_rotation_keeps_the_old_secret_valid(fake: Fake) -> None:
    row = services.create_webhook_endpoint(**ENDPOINT)
    old = vars(row)["secret"]
    again = services.rotate_webhook_secret(row.pk)
    new = vars(again)["secret"]
    assert new != old
    assert {old, new} <= set(stored(row))


@pytest.mark.case(63)
@pytest.mark.promise(5)
@pytest.mark.parametrize("create", [True, False])
def test_a_lost_secret_is_requested_again_under_the_same_key(fake: Fake, mirrored: Any, create: bool) -> None:
    row = None if create else mirrored(endpoint())
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_webhook_endpoint(**ENDPOINT) if row is None else services.rotate_webhook_secret(row)
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert Operation.objects.count() == 1, "nothing was rotated again"
    row = WebhookEndpoint.objects.get()
    assert fake.objects[row.pk].secret in stored(row)


@pytest.mark.case(63)
@pytest.mark.parametrize("create", [True, False])
def test_a_secret_that_stays_lost_is_rotated_again(fake: Fake, mirrored: Any, create: bool) -> None:
    row = None if create else mirrored(endpoint())
    fake.script = [Lost(timeout()), lambda made: endpoint(id=made.id)]
    with pytest.raises(OutcomeUnknown):
        services.create_webhook_endpoint(**ENDPOINT) if row is None else services.rotate_webhook_secret(row)
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert services.resume_operations() == {"done": 1}
    assert services.resume_operations() == {}
    first, second = Operation.objects.order_by("created_at")
    assert second.operation == "rotate_webhook_secret"
    assert second.idempotency_key == f"{first.pk}-again"
    row = WebhookEndpoint.objects.get()
    assert fake.objects[row.pk].secret in stored(row)


@pytest.mark.case(63)
def test_an_old_secret_does_not_replace_a_newer_one_under_any_local_clock(
    fake: Fake, mirrored: Any, time_machine: Any
) -> None:
    row = mirrored(endpoint())
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.rotate_webhook_secret(row)
    lost = fake.objects[row.pk].secret
    now = timezone.now()
    time_machine.move_to(now - timedelta(minutes=10))
    newer = vars(services.rotate_webhook_secret(row))["secret"]
    time_machine.move_to(now + timedelta(seconds=1))
    make_due()
    # The provider repeats the answer that was lost, with the secret that the second rotation ended.
    fake.script = [endpoint(id=row.pk, secret=lost)]
    assert services.resume_operations() == {"done": 1}
    assert stored(row)[1] == newer  # behind that of the settings
    # It is unknown which of the two is newer, so there is a third rotation.
    assert Operation.objects.filter(idempotency_key__endswith="-again", state=OperationState.DUE).count() == 1
    assert services.resume_operations() == {"done": 1}
    assert stored(row)[1] == fake.objects[row.pk].secret not in (lost, newer)
    assert services.resume_operations() == {}


def test_a_first_answer_without_a_secret_calls_attention(fake: Fake, attention: list[str]) -> None:
    fake.secrets = False
    row = services.create_webhook_endpoint(**ENDPOINT)
    assert vars(row)["secret"] is None
    assert attention == ["secret_missing"]
    assert only_operation().state == OperationState.DONE


def test_a_deletion_removes_the_secret_and_can_be_repeated(fake: Fake) -> None:
    row = services.create_webhook_endpoint(**ENDPOINT)
    assert services.delete_webhook_endpoint(row, idempotency_key="k1") is None
    row.refresh_from_db()
    assert row.deleted_at is not None
    assert not row.secret_token
    assert services.delete_webhook_endpoint(row.pk, idempotency_key="k1") is None
    assert [call.name for call in fake.calls] == ["create_webhook_endpoint", "delete"]


@pytest.mark.parametrize("status", [404, 410])
def test_deleting_an_endpoint_that_is_gone_is_rejected_and_marks_it(fake: Fake, mirrored: Any, status: int) -> None:
    row = mirrored(endpoint())
    fake.script = [refusal(NotFound, status, "resource_not_found")]
    with pytest.raises(NotFound):
        services.delete_webhook_endpoint(row)
    row.refresh_from_db()
    assert row.deleted_at is not None
    assert only_operation().state == OperationState.REJECTED


def test_a_deletion_whose_answer_was_lost_is_repeated(fake: Fake, mirrored: Any) -> None:
    row = mirrored(endpoint())
    fake.script = [Lost(timeout()), not_found()]
    with pytest.raises(OutcomeUnknown):
        services.delete_webhook_endpoint(row)
    make_due()
    assert services.resume_operations() == {"done": 1}
    row.refresh_from_db()
    assert row.deleted_at is not None


def test_a_sync_marks_endpoints_that_are_gone(fake: Fake, mirrored: Any) -> None:
    gone = mirrored(endpoint(), known=False)
    # Of one that was written just before, the list may not know yet.
    WebhookEndpoint.objects.update(synced_at=timezone.now() - timedelta(minutes=1))
    there = fake.add(endpoint())
    assert [row.pk for row in services.sync_webhook_endpoints()] == [there.id]
    gone.refresh_from_db()
    assert gone.gone_at is not None
    assert services.refresh(WebhookEndpoint.objects.get(pk=there.id)).pk == there.id
    with pytest.raises(NotFound):
        services.refresh(gone)


def test_a_second_rotation_that_is_refused_calls_attention(fake: Fake, attention: list[str]) -> None:
    fake.script = [Lost(timeout()), lambda made: endpoint(id=made.id), refusal(NotFound, 404, "resource_not_found")]
    with pytest.raises(OutcomeUnknown):
        services.create_webhook_endpoint(**ENDPOINT)
    make_due()
    services.resume_operations()
    services.resume_operations()
    assert attention == ["deferred_rejected"]
