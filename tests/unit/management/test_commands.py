"""The commands, with the arguments that a person types."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from payments_integration import inbox, services
from payments_integration.models import Event, ReconciliationRun, WebhookEndpoint
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.conftest import Receiver

pytestmark = pytest.mark.django_db


def run(*words: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=out, **options)
    return out.getvalue()


@pytest.fixture
def sandbox(payments_sandbox: ProviderSandbox, settings: Any) -> ProviderSandbox:
    """A sandbox with one account; it drops every delivery."""
    only = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": only}}
    payments_sandbox.engine.faults.add(Fault("drop", times=None))
    return payments_sandbox


def missed_payment(sandbox: ProviderSandbox) -> None:
    payment = services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
    sandbox.engine.pay(payment.id)
    sandbox.deliver()
    sandbox.engine.clock.advance(10)


class TestReconcile:
    def test_reconcile_finds_missed_events(self, sandbox: ProviderSandbox) -> None:
        missed_payment(sandbox)
        output = run("payments_reconcile")
        assert f"default events: done, {len(sandbox.project.events)} seen" in output
        assert Event.objects.count() == len(sandbox.project.events)

    def test_reconcile_full_compares_every_object(self, sandbox: ProviderSandbox) -> None:
        run("payments_reconcile", "--full", "--account", "default")
        assert ReconciliationRun.objects.filter(kind="full", state="done").exists()

    def test_reconcile_reads_only_a_given_range(self, sandbox: ProviderSandbox) -> None:
        missed_payment(sandbox)
        assert "0 recovered" in run("payments_reconcile", "--since", "2020-01-01", "--until", "2020-01-02T00:00:00Z")
        assert not Event.objects.exists()

    def test_a_terminal_shows_the_progress(self, sandbox: ProviderSandbox) -> None:
        missed_payment(sandbox)
        terminal = io.StringIO()
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        call_command("payments_reconcile", stdout=io.StringIO(), stderr=terminal, no_color=True)
        assert "default events: 0 objects" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\x1b[K")

    def test_reconcile_exits_with_an_error_if_a_pass_fails(self, sandbox: ProviderSandbox) -> None:
        sandbox.engine.faults.add(Fault("html", operation="list_events", times=None))
        with pytest.raises(CommandError, match="continues there"):
            run("payments_reconcile")

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["--account", "missing"], "no account"),
            (["--since", "yesterday"], "write 2026-01-31"),
            (["--since", "2026-13-01"], "not a time"),
            (["--since", "2026-01-02", "--until", "2026-01-01"], "before --until"),
        ],
    )
    def test_reconcile_refuses_wrong_arguments(self, words: list[str], says: str) -> None:
        with pytest.raises(CommandError, match=says):
            run("payments_reconcile", *words)


class TestProcess:
    def test_process_does_what_a_worker_would_do(
        self, sandbox: ProviderSandbox, receiver: Receiver, woken: list[str]
    ) -> None:
        inbox.receive("default", factories.body(factories.life()[0]))
        missed_payment(sandbox)
        run("payments_process", verbosity=2)
        assert len(receiver.events) == 1 + len(sandbox.project.events)
        assert set(ReconciliationRun.objects.values_list("kind", flat=True)) >= {"events", "objects", "balances"}

    def test_process_reconciles_as_often_as_the_schedule_says(self, sandbox: ProviderSandbox) -> None:
        run("payments_process")
        count = ReconciliationRun.objects.count()
        run("payments_process")
        assert ReconciliationRun.objects.count() == count
        run("payments_process", "--all")
        assert ReconciliationRun.objects.count() == count + 3
        ReconciliationRun.objects.update(started_at=timezone.now() - timedelta(minutes=6))
        run("payments_process")
        assert ReconciliationRun.objects.count() == count + 4


class TestEndpoints:
    URL = "https://shop.example/payments/webhook/"

    def test_endpoints_can_be_created_listed_rotated_and_deleted(self, sandbox: ProviderSandbox) -> None:
        output = run("payments_endpoints", "create", self.URL)
        endpoint = WebhookEndpoint.objects.get(url=self.URL)
        assert endpoint.pk in output
        assert "whsec" not in output
        assert "secret known" in run("payments_endpoints", "list")
        first = endpoint.secret_token
        rotated = run("payments_endpoints", "rotate", endpoint.pk, "--show-secret")
        endpoint.refresh_from_db()
        assert endpoint.secret_token != first
        (secret,) = [line.rpartition(" ")[2] for line in rotated.splitlines() if "shown only now" in line]
        assert secret in sandbox.project.endpoint(endpoint.pk).secrets_at(sandbox.engine.clock.now())
        run("payments_endpoints", "delete", endpoint.pk)
        endpoint.refresh_from_db()
        assert endpoint.deleted_at is not None
        assert endpoint.pk not in sandbox.project.endpoints

    def test_show_secret_prints_the_secret_of_a_new_endpoint(self, sandbox: ProviderSandbox) -> None:
        output = run("payments_endpoints", "create", self.URL, "--show-secret", "--events", "payment.succeeded")
        assert "shown only now" in output
        assert WebhookEndpoint.objects.get(url=self.URL).events == ["payment.succeeded"]

    def test_endpoints_shows_errors(self, sandbox: ProviderSandbox) -> None:
        with pytest.raises(CommandError, match=r"(?i)https"):
            run("payments_endpoints", "create", "http://shop.example/")
        with pytest.raises(CommandError, match="resource_not_found"):
            run("payments_endpoints", "rotate", "whk_unknown")
        with pytest.raises(CommandError, match="no account"):
            run("payments_endpoints", "list", "--account", "missing")


class TestListen:
    def test_listen_puts_events_into_the_inbox(self, sandbox: ProviderSandbox, receiver: Receiver) -> None:
        missed_payment(sandbox)
        output = run("payments_listen", "--once")
        assert "payment.succeeded" in output
        assert receiver.events

    def test_listen_stops_with_ctrl_c_and_survives_an_outage(self, sandbox: ProviderSandbox) -> None:
        sandbox.engine.faults.add(Fault("html", operation="list_events", times=1))
        with mock.patch("time.sleep", side_effect=[None, KeyboardInterrupt]):
            output = run("payments_listen")
        assert "The provider did not answer" in output
        assert "Stopped." in output
