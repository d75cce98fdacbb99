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

from .conftest import make_due, only
from .fakes import ENDPOINT, Fake, Lost, endpoint, not_found, refusal, timeout


def stored(row: WebhookEndpoint) -> tuple[str, ...]:
    return projection.active_secrets(row.account, fresh=True)


def everything() -> str:
    return serializers.serialize("json", [*Operation.objects.all(), *WebhookEndpoint.objects.all()])


@pytest.mark.case(85)
@pytest.mark.promise(7)
def test_create(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        row = services.create_webhook_endpoint(**ENDPOINT, idempotency_key="k1")
    secret = fake.objects[row.pk].secret
    assert vars(row)["secret"] == secret
    assert secret in stored(row)
    assert json.loads(fake.calls[0].body) == ENDPOINT
    for text in (everything(), repr(row), str(row), repr(only()), caplog.text):
        assert secret not in text
    assert "secret" not in [field.name for field in WebhookEndpoint._meta.get_fields()]
    again = services.create_webhook_endpoint(**ENDPOINT, idempotency_key="k1")
    assert getattr(again, "secret", None) is None


def test_repeated_types_go_out_once(fake: Fake) -> None:
    services.create_webhook_endpoint(
        url="http://localhost:8000/", events=("payout.failed", "payment.succeeded", "payout.failed")
    )
    assert json.loads(fake.calls[0].body)["events"] == ["payout.failed", "payment.succeeded"]
    services.create_webhook_endpoint(url="http://localhost:8000/", events={"payout.failed", "payment.created"})
    assert json.loads(fake.calls[1].body)["events"] == ["payment.created", "payout.failed"]


def test_rotate_keeps_the_old_one_valid(fake: Fake) -> None:
    row = services.create_webhook_endpoint(**ENDPOINT)
    old = vars(row)["secret"]
    again = services.rotate_webhook_secret(row.pk)
    new = vars(again)["secret"]
    assert new != old
    assert {old, new} <= set(stored(row))


@pytest.mark.case(63)
@pytest.mark.promise(5)
@pytest.mark.parametrize("create", [True, False])
def test_a_lost_answer_is_asked_for_again(fake: Fake, mirrored: Any, create: bool) -> None:
    row = None if create else mirrored(endpoint())
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_webhook_endpoint(**ENDPOINT) if row is None else services.rotate_webhook_secret(row)
    make_due()
    assert services.resume_operations() == {"done": 1}
    assert Operation.objects.count() == 1, "nothing was rotated anew"
    row = WebhookEndpoint.objects.get()
    assert fake.objects[row.pk].secret in stored(row)


@pytest.mark.case(63)
@pytest.mark.parametrize("create", [True, False])
def test_where_that_brings_no_secret_it_is_rotated_anew(fake: Fake, mirrored: Any, create: bool) -> None:
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
def test_an_old_secret_does_not_take_the_place_of_a_newer_one_whatever_our_clock_said(
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
    # Which of the two is the last one, nobody knows: a third one is.
    assert Operation.objects.filter(idempotency_key__endswith="-again", state=OperationState.DUE).count() == 1
    assert services.resume_operations() == {"done": 1}
    assert stored(row)[1] == fake.objects[row.pk].secret not in (lost, newer)
    assert services.resume_operations() == {}


def test_a_first_answer_without_a_secret_calls_attention(fake: Fake, attention: list[str]) -> None:
    fake.secrets = False
    row = services.create_webhook_endpoint(**ENDPOINT)
    assert vars(row)["secret"] is None
    assert attention == ["secret_missing"]
    assert only().state == OperationState.DONE


def test_delete(fake: Fake) -> None:
    row = services.create_webhook_endpoint(**ENDPOINT)
    assert services.delete_webhook_endpoint(row, idempotency_key="k1") is None
    row.refresh_from_db()
    assert row.deleted_at is not None
    assert not row.secret_token
    assert services.delete_webhook_endpoint(row.pk, idempotency_key="k1") is None
    assert [call.name for call in fake.calls] == ["create_webhook_endpoint", "delete"]


def test_delete_of_one_that_is_gone(fake: Fake, mirrored: Any) -> None:
    row = mirrored(endpoint())
    fake.objects.clear()
    with pytest.raises(NotFound):
        services.delete_webhook_endpoint(row)
    row.refresh_from_db()
    assert row.deleted_at is not None
    assert only().state == OperationState.REJECTED


def test_delete_whose_answer_was_lost(fake: Fake, mirrored: Any) -> None:
    row = mirrored(endpoint())
    fake.script = [Lost(timeout()), not_found()]
    with pytest.raises(OutcomeUnknown):
        services.delete_webhook_endpoint(row)
    make_due()
    assert services.resume_operations() == {"done": 1}
    row.refresh_from_db()
    assert row.deleted_at is not None


def test_sync(fake: Fake, mirrored: Any) -> None:
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


def test_a_refused_rotation_made_anew_calls_attention(fake: Fake, attention: list[str]) -> None:
    fake.script = [Lost(timeout()), lambda made: endpoint(id=made.id), refusal(NotFound, 404, "resource_not_found")]
    with pytest.raises(OutcomeUnknown):
        services.create_webhook_endpoint(**ENDPOINT)
    make_due()
    services.resume_operations()
    services.resume_operations()
    assert attention == ["deferred_rejected"]
