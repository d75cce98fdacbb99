"""The checks as django-health-check runs them, through URLs."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils import timezone
from health_check.views import HealthCheckView

from payments_integration import health, projection
from payments_integration.contrib import health_check
from payments_integration.contrib.health_check import EXTRA, Liveness, Money, Readiness
from payments_integration.db.encryption import encrypt
from payments_integration.models import Event
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests.factories import rows

urlpatterns = [
    path("health/live/", HealthCheckView.as_view(checks=[Liveness])),
    path("health/ready/", HealthCheckView.as_view(checks=[Readiness])),
    path("health/money/", HealthCheckView.as_view(checks=[Money])),
    path("health/money/second/", HealthCheckView.as_view(checks=[(Money, {"account": "second"})])),
    path("health/", HealthCheckView.as_view(checks=[Liveness, Readiness, Money])),
]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


def get(client: Client, url: str) -> tuple[int, dict[str, str]]:
    answer = client.get(f"/health/{url}", headers={"accept": "application/json"})
    return answer.status_code, json.loads(answer.content)


class Broken:
    """Every statement fails as if the database were down."""

    def __call__(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        raise OperationalError("connection to db.internal as user shop failed")


def test_the_process_lives_without_a_database(client: Client) -> None:
    with connection.execute_wrapper(Broken()):
        assert get(client, "live/") == (200, {"Liveness()": "OK"})


def test_the_process_is_ready_while_the_provider_is_down(client: Client) -> None:
    with ProviderSandbox() as sandbox:
        sandbox.engine.faults.add(Fault("error", times=None, status=500))
        with CaptureQueriesContext(connection) as queries:
            assert get(client, "ready/") == (200, {"Readiness()": "OK"})
        assert len(queries) <= 3
        assert client.get("/health/ready/").status_code == 200


def test_it_is_not_ready_without_a_database(client: Client) -> None:
    with connection.execute_wrapper(Broken()):
        status, shown = get(client, "ready/")
    assert (status, shown) == (500, {"Readiness()": "Unavailable: the database cannot be used: OperationalError"})


def test_it_is_not_ready_before_the_migrations_are_applied(client: Client) -> None:
    MigrationRecorder(connection).migration_qs.filter(app="payments_finance").delete()
    assert get(client, "ready/") == (
        500, {"Readiness()": "Unavailable: migrations are not applied: payments_finance.0001_initial"},
    )  # fmt: skip


def test_migrations_that_a_project_turned_off_or_a_newer_version_applied_do_not_count(
    client: Client, settings: Any
) -> None:
    MigrationRecorder(connection).record_applied("payments_integration", "0999_of_a_newer_version")
    MigrationRecorder(connection).migration_qs.filter(app="payments_finance").delete()
    settings.MIGRATION_MODULES = {"payments_finance": None}
    assert get(client, "ready/")[0] == 200


def test_it_is_not_ready_if_no_key_reads_a_secret(client: Client, settings: Any) -> None:
    rows.endpoint(secret_token=encrypt("whsec_of_the_endpoint"))
    settings.SECRET_KEY = "another-secret-key-without-the-old-one-as-fallback-0123456789"
    projection.forget_secrets()
    assert get(client, "ready/")[0] == 200, "the setting has another one"
    accounts = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
    accounts = {**accounts, "default": {**accounts["default"], "WEBHOOK_SECRETS": []}}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": accounts}
    status, shown = get(client, "ready/")
    assert (status, shown) == (
        500, {"Readiness()": "Unavailable: no key decrypts the webhook secrets of account default"},
    )  # fmt: skip


def test_money_names_what_needs_a_person_and_shows_nothing_else(client: Client, monkeypatch: Any) -> None:
    operation = rows.operation(
        state="needs_person", arguments={"payer": {"name": "Rosa Luna"}}, note="asked Rosa Luna"
    )
    status, shown = get(client, "money/")
    report = health.examine()
    assert status == 500
    [(name, text)] = shown.items()
    assert name == "Money(account=None)"
    expected = [
        f"{alias}: {problem.code} ({problem.count})"
        for alias in ("default", "second")
        for problem in report.accounts[alias].problems
    ]
    assert text == f"Warning: {'; '.join(expected)}"
    assert "default: operation_needs_resolution (1)" in expected
    assert not [found for found in ("Rosa", operation.pk, "person") if found in text]
    assert get(client, "money/second/")[1] == {
        "Money(account='second')": f"Warning: {'; '.join(each for each in expected if each.startswith('second'))}"
    }
    # A load balancer asks another URL.
    assert get(client, "ready/")[0] == get(client, "live/")[0] == 200


def test_money_is_fine_if_nothing_needs_a_person(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "examine", lambda account: health.Report(timezone.now()))
    assert get(client, "money/") == (200, {"Money(account=None)": "OK"})


def test_money_reports_a_database_that_cannot_be_read(client: Client) -> None:
    with connection.execute_wrapper(Broken()):
        assert get(client, "money/") == (
            500, {"Money(account=None)": "Unavailable: the database cannot be used: OperationalError"},
        )  # fmt: skip


@pytest.mark.parametrize("shown_as", ["html", "text", "openmetrics", "rss"])
def test_every_format_shows_the_checks(client: Client, shown_as: str) -> None:
    answer = client.get("/health/", {"format": shown_as})
    for name in ("Liveness", "Readiness", "Money"):
        assert name in answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_checks_run_under_asgi() -> None:
    from asgiref.sync import async_to_sync  # noqa: PLC0415

    async def ask() -> int:
        return int((await AsyncClient().get("/health/ready/")).status_code)

    Event.objects.count()
    assert async_to_sync(ask)() == 200


def test_the_module_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "health_check.base", None)
    monkeypatch.delitem(sys.modules, health_check.__name__)
    with pytest.raises(ImproperlyConfigured) as raised:
        importlib.import_module(health_check.__name__)
    assert EXTRA in str(raised.value)
