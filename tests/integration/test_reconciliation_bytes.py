"""Passes over events whose bytes are not valid JSON."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from payments_integration import reconciliation
from payments_integration.client import transport
from payments_integration.models import AccountState, Event, Payment
from payments_integration.testing import ProviderSandbox
from tests.integration.reconciling import pass_time, pay

pytestmark = pytest.mark.django_db

HERE = b"it-stands-here"


def with_bytes(bad: bytes) -> Any:
    """The provider's answers contain these bytes."""
    real = transport._read

    def read(response: Any) -> tuple[bytes, str]:
        content, problem = real(response)
        return content.replace(HERE, bad), problem

    return mock.patch.object(transport, "_read", read)


@pytest.mark.promise(4)
@pytest.mark.case(20)
@pytest.mark.parametrize("bad", [rb"Ana \ud83d", rb"\udc00", b"\x01", b"\xff"], ids=str)
def test_unreadable_text_does_not_stop_a_pass(
    sandbox: ProviderSandbox, attentions: list[dict[str, Any]], bad: bytes
) -> None:
    broken, *others = [pay(sandbox, merchant_reference=text) for text in (HERE.decode(), "a", "b")]
    about = [event for event in sandbox.project.events if event["data"].get("id") == broken.pk]
    pass_time(sandbox, seconds=10)
    with with_bytes(bad):
        run = reconciliation.reconcile_events()
        assert (run.state, run.error) == ("done", "")
        assert Event.objects.count() == len(sandbox.project.events)
        quarantined = Event.objects.filter(state="quarantined")
        found = sorted(bytes(event.body or b"").split(b'"')[3].decode() for event in quarantined)
        assert found == sorted(event["id"] for event in about)
        assert [seen["reason"] for seen in attentions] == ["event_quarantined"] * len(about)
        watermark = AccountState.objects.get().watermark
        assert watermark is not None
        assert (timezone.now() - watermark).total_seconds() < 60
        reconciliation.process_due()
        readable = Payment.objects.filter(pk__in=[payment.pk for payment in others])
        assert set(readable.values_list("status", flat=True)) == {"succeeded"}
        # The next pass knows all of them and sends no further attention.
        assert reconciliation.reconcile_events().recovered == 0
        assert len(attentions) == len(about)
