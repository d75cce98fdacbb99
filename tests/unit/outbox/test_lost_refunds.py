"""Refunds of open outcome that another refund of the payment meets first."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from payments_integration import services
from payments_integration.client import PageOf
from payments_integration.exceptions import OutcomeUnknown, PaymentsError
from payments_integration.models import Operation, OperationState, Payment
from payments_integration.outbox import recovery
from tests.fake_provider import Fake, Lost, answer, make_due, payment, refund, timeout


@pytest.fixture
def paid(mirrored: Any) -> Payment:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    assert isinstance(row, Payment)
    return row


@pytest.mark.promise(5)
def test_a_refund_known_before_sending_is_not_linked(fake: Fake, paid: Payment, mirrored: Any) -> None:
    """It was made in the dashboard, and mirrored, before this request was lost on its way."""
    since = timezone.now() - timedelta(minutes=3)
    elsewhere = mirrored(refund(payment_id=paid.pk, amount=1_000, status="succeeded", created_at=since))
    fake.script = [timeout()]
    with pytest.raises(OutcomeUnknown) as caught:
        services.create_refund(paid, amount=1_000)
    services.create_refund(paid, amount=500)
    lost = Operation.objects.get(pk=caught.value.operation.pk)
    assert lost.result_id != elsewhere.pk
    make_due(lost)
    services.resume_operations()
    lost.refresh_from_db()
    assert lost.state == OperationState.DONE
    assert sorted(made.amount for made in fake.made("refund")) == [500, 1_000, 1_000]


def test_a_competitor_is_waited_for_once(
    fake: Fake, paid: Payment, mirrored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored(refund(payment_id=paid.pk, amount=1, status="succeeded"))
    fake.script = [Lost(timeout())]
    with pytest.raises(OutcomeUnknown):
        services.create_refund(paid, amount=6_000)
    Operation.objects.update(claimed_until=timezone.now() + timedelta(seconds=50), claim_token="another")
    monkeypatch.setattr(recovery, "COMPETITOR_WAIT", 1.0)
    sleep, naps = time.sleep, []
    monkeypatch.setattr(time, "sleep", lambda seconds: (naps.append(seconds), sleep(seconds)))
    with pytest.raises(ValidationError):
        services.create_refund(paid, amount=3_999)
    assert 0 < sum(naps) < 1.5


def test_an_unreadable_list_is_an_error_that_callers_expect(
    fake: Fake, paid: Payment, mirrored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admin and API handle PaymentsError and ValidationError."""
    mirrored(refund(payment_id=paid.pk, amount=1, status="succeeded"))
    page = answer(PageOf(items=[], has_more=False, cursor=None, unreadable=("$.data[0]",)))
    monkeypatch.setattr(type(fake.refunds), "pages", lambda self, **filters: iter([page]))
    with pytest.raises(PaymentsError):
        services.create_refund(paid, amount=10)
    with pytest.raises(PaymentsError):
        services.refundable(paid, at_least=10_000)
    assert fake.calls == []
