"""Endpoints are checked, and a rotation replaces a lost secret."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from cryptography.fernet import Fernet
from django.utils import timezone

from payments_integration import projection, reconciliation, services
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import (
    WebhookEndpoint,
)
from payments_integration.sync import get_client
from payments_integration.testing import ProviderSandbox

pytestmark = [pytest.mark.django_db, pytest.mark.promise(4)]


class TestEndpoints:
    def test_a_disabled_endpoint_sends_attention_once(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        reconciliation.check_endpoints()
        assert not attentions
        endpoint = WebhookEndpoint.objects.get()
        sandbox.project.state.endpoints.by_id[endpoint.pk].status = "disabled"
        reconciliation.check_endpoints()
        reconciliation.check_endpoints()
        assert [seen["reason"] for seen in attentions] == ["endpoint"]
        assert "disabled" in attentions[0]["message"]

    def test_a_problem_that_another_read_saw_first_is_reported_and_so_is_its_return(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        reconciliation.check_endpoints()
        state = sandbox.project.state.endpoints.by_id[WebhookEndpoint.objects.get().pk]
        state.status = "disabled"
        services.sync_webhook_endpoints()
        reconciliation.check_endpoints()
        assert len(attentions) == 1
        state.status = "active"
        reconciliation.check_endpoints()
        assert len(attentions) == 1
        state.status = "disabled"
        reconciliation.check_endpoints()
        assert len(attentions) == 2

    def test_an_endpoint_that_is_gone_sends_attention(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, attentions: list[dict[str, Any]]
    ) -> None:
        reconciliation.check_endpoints()
        clock.shift(timedelta(minutes=10))
        sandbox.project.state.endpoints.by_id.clear()
        reconciliation.check_endpoints()
        assert "does not list this endpoint" in attentions[0]["message"]
        assert WebhookEndpoint.objects.get().gone_at is not None

    def test_missing_event_types_send_attention(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        sandbox.project.add_endpoint("https://other.example/payments/webhook/", events=["payment.created"])
        reconciliation.check_endpoints()
        assert "payout.succeeded" in attentions[0]["message"]

    def test_an_endpoint_of_another_system_is_left_alone(
        self, sandbox: ProviderSandbox, attentions: list[dict[str, Any]]
    ) -> None:
        """A project may have ten (spec, "Limits"). A new secret would end the other system's deliveries."""
        added = sandbox.project.add_endpoint("https://erp.example/hooks/", events=["payment.created"])
        sandbox.project.state.endpoints.by_id[added["id"]].status = "disabled"
        reconciliation.check_endpoints()
        assert WebhookEndpoint.objects.count() == 2
        assert not attentions

    def test_an_endpoint_that_is_created_while_the_list_is_read_is_not_gone(
        self, sandbox: ProviderSandbox, clock: time_machine.Traveller, attentions: list[dict[str, Any]]
    ) -> None:
        endpoints = get_client("default").webhook_endpoints
        real = endpoints.list

        def slow(**kwargs: Any) -> Any:
            answer = real(**kwargs)
            services.create_webhook_endpoint(url="https://shop.example/webhook/", events=list(EVENT_TYPES))
            return answer

        with mock.patch.object(endpoints, "list", slow):
            reconciliation.check_endpoints()
        assert WebhookEndpoint.objects.count() == 2
        assert not WebhookEndpoint.objects.exclude(gone_at=None).exists()
        assert not attentions


class TestLostKey:
    """The key that encrypted a secret is lost, so the secret must be rotated."""

    @pytest.fixture
    def endpoint(self, sandbox: ProviderSandbox) -> WebhookEndpoint:
        reconciliation.check_endpoints()
        row = WebhookEndpoint.objects.get()
        row.secret_token = row.previous_secret_token = Fernet(Fernet.generate_key()).encrypt(b"whsec_old").decode()
        row.previous_secret_until = timezone.now() + timedelta(hours=1)
        row.save()
        projection.forget_secrets()
        return row

    def test_a_rotation_replaces_a_secret_that_cannot_be_decrypted(self, endpoint: WebhookEndpoint) -> None:
        assert projection.unreadable_secrets("default") == (endpoint.pk,)
        secret = services.rotate_webhook_secret(endpoint).secret
        assert secret in projection.active_secrets("default")
