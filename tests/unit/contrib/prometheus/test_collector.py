"""What a scrape reads from the database, and what it costs."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from payments_integration import health
from payments_integration.contrib.prometheus import PaymentsCollector
from payments_integration.contrib.prometheus.collector import FAMILIES
from payments_integration.models import AccountState, EventState, OperationState
from payments_integration.signals import Reason
from tests.factories import rows
from tests.unit.health.test_health import fill

PAGE = Path(__file__).parents[4] / "docs" / "monitoring.md"

Samples = dict[tuple[str, ...], float]


def scrape() -> dict[str, Samples]:
    """The samples of each family, by the values of their labels in the order of the family."""
    registry = CollectorRegistry()
    registry.register(PaymentsCollector())
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        family.name: {
            tuple(sample.labels[name] for name in FAMILIES[family.name][0]): sample.value for sample in family.samples
        }
        for family in families
    }


@pytest.mark.parametrize("auto_describe", [False, True])
def test_it_works_in_any_registry_and_registering_reads_no_database(auto_describe: bool) -> None:
    """A test without a database fails where one is read."""
    registry = CollectorRegistry(auto_describe=auto_describe)
    registry.register(PaymentsCollector())
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(PaymentsCollector())


@pytest.mark.django_db
def test_every_state_of_every_account_exists_before_there_is_a_row() -> None:
    found = scrape()
    assert set(found) == set(FAMILIES)
    accounts = ("default", "second")
    events = ("pending", "not_applied", "held", "applied", "parked", "quarantined")
    assert found["payments_backlog_events"] == {(alias, state): 0 for alias in accounts for state in events}
    assert found["payments_backlog_age_seconds"] == found["payments_backlog_events"]
    operations = ("due", "unknown", "needs_person", "awaiting_approval")
    assert found["payments_operations"] == {(alias, state): 0 for alias in accounts for state in operations}
    assert found["payments_watermark_age_seconds"] == {(alias,): math.inf for alias in accounts}
    codes = set(Reason) - {
        Reason.DEFERRED_REFUSED,
        Reason.DEFERRED_REJECTED,
        Reason.LEDGER_INCOMPLETE,
        Reason.ORDER_UNPAID,
        Reason.DATABASE,
        Reason.REMOVED_ACCOUNT,
    }
    assert set(found["payments_problems"]) == {
        *((alias, code) for alias in accounts for code in codes), ("", "database"), ("", "removed_account"),
    }  # fmt: skip
    assert {key for key, count in found["payments_problems"].items() if count} == {
        (alias, "never_reconciled") for alias in accounts
    }
    assert found["payments_up"] == {(): 1}
    empty = ("payments_balance_minor_units", "payments_currency_exponent", "payments_clock_offset_seconds")
    assert [name for name, samples in found.items() if not samples] == [*empty, "payments_removed_account_rows"]


@pytest.mark.django_db
def test_the_figures_are_those_of_the_rows() -> None:
    now = timezone.now()
    AccountState.objects.create(account="second", watermark=now - timedelta(seconds=200), clock_offset=-3.5)
    for state, seconds in ((EventState.PENDING, 100), (EventState.PENDING, 400), (EventState.QUARANTINED, 50)):
        rows.event(account="second", state=state, received_at=now - timedelta(seconds=seconds))
    rows.event(account="second", state=EventState.PENDING, attempts=2, received_at=now)
    rows.change(account="second", state=EventState.PARKED)
    rows.event(account="second", source="webhook", created_at=now - timedelta(hours=1), received_at=now)
    for state in (OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL, OperationState.DUE):
        rows.operation(account="second", state=state, created_at=now - timedelta(seconds=70))
    rows.due(account="second", due_at=now - timedelta(seconds=9), attempts=11)
    rows.due(account="second", due_at=now + timedelta(hours=1))
    rows.run(account="second", kind="objects", drifted=5, repaired=4, started_at=now - timedelta(seconds=30))
    rows.run(account="second", kind="events", state="failed", error="x", started_at=now - timedelta(seconds=20))
    rows.endpoint(account="second", status="disabled")
    rows.endpoint(account="second", status="a new word")
    rows.balance(account="second", currency="CLP", available=123, debt=7)
    rows.balance(account="second", currency="USD", gone_at=now)
    rows.operation(account="gone", state=OperationState.DUE)
    found = scrape()

    def own(name: str, *labels: str) -> Any:
        return pytest.approx(found[f"payments_{name}"]["second", *labels], abs=5)

    assert own("backlog_events", "pending") == 2
    assert own("backlog_age_seconds", "pending") == 400
    assert own("backlog_events", "not_applied") == 1
    assert own("backlog_events", "parked") == 1
    assert own("backlog_events", "quarantined") == 1
    assert own("operations", "needs_person") == own("operations", "due") == own("operations", "awaiting_approval") == 1
    assert own("operations_age_seconds", "awaiting_approval") == 70
    assert own("operations_due") == 1
    assert own("refreshes_due") == own("refreshes_failing") == 1
    assert own("watermark_age_seconds") == 200
    assert own("clock_offset_seconds") == -3.5
    assert own("webhook_lag_seconds", "median") == 3600 - 3.5
    assert own("last_event_age_seconds", "webhook") == 0
    assert own("run_failures", "events") == 1
    assert own("run_done_age_seconds", "events") == math.inf
    assert own("run_age_seconds", "objects") == 30
    assert (own("drift_objects", "drifted"), own("drift_objects", "repaired")) == (5, 4)
    assert own("endpoints", "disabled") == own("endpoints", "other") == 1
    assert own("endpoints", "active") == 0
    assert own("balance_minor_units", "CLP", "available") == 123
    assert own("balance_minor_units", "CLP", "debt") == 7
    assert found["payments_currency_exponent"] == {("CLP",): 0}
    assert found["payments_problems"]["second", "operation_needs_resolution"] == 1
    assert found["payments_problems"]["", "removed_account"] == 1
    assert found["payments_removed_account_rows"]["gone", "operations"] == 1
    assert found["payments_backlog_events"]["default", "pending"] == 0


@pytest.mark.django_db
def test_a_scrape_has_the_problems_of_payments_health() -> None:
    fill(3)
    problems = scrape()["payments_problems"]
    report = health.examine()
    reported = {
        (alias, problem.code.value): problem.count
        for alias, account in report.accounts.items()
        for problem in account.problems
    }
    reported |= {("", problem.code.value): problem.count for problem in report.problems}
    assert {key: count for key, count in problems.items() if count} == reported


@pytest.mark.django_db
def test_a_scrape_takes_as_many_statements_with_any_rows_and_several_accounts(settings: Any) -> None:
    options = settings.PAYMENTS_INTEGRATION
    first = options["ACCOUNTS"]["default"]
    accounts = {f"shop-{number}": {**first, "API_KEY": f"sk_test_{number}"} for number in range(4)}
    settings.PAYMENTS_INTEGRATION = {**options, "ACCOUNTS": {"default": first, **accounts}}
    counts = []
    for number in (1, 30):
        fill(number)
        rows.balance(currency=f"X{number}")
        with CaptureQueriesContext(connection) as queries:
            scrape()
        counts.append(len(queries))
    assert counts == [10, 10], "one more than nine, because an account was removed"
    assert [query for query in queries if not query["sql"].startswith("SELECT")] == []


def test_a_database_that_is_down_is_a_figure_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OperationalError("could not connect to postgres://payments:secret@db.internal")

    monkeypatch.setattr(health, "examine", fail)
    monkeypatch.setattr(connection, "close_if_unusable_or_obsolete", lambda: None)
    monkeypatch.setattr(connection, "close", lambda: None)
    found = scrape()
    assert found["payments_up"] == {(): 0}
    assert found["payments_problems"] == {("", "database"): 1, ("", "removed_account"): 0}
    with_samples = {name for name, samples in found.items() if samples}
    assert with_samples == {"payments_up", "payments_scrape_seconds", "payments_problems"}


@pytest.mark.django_db(transaction=True)
def test_a_thread_of_its_own_is_left_without_a_connection() -> None:
    """As in the server of prometheus_client, where no request closes it."""
    left: list[bool] = []

    def answer() -> None:
        assert scrape()["payments_up"] == {(): 1}
        left.append(connections["default"].connection is not None)

    thread = threading.Thread(target=answer)
    thread.start()
    thread.join()
    assert left == [False]


@pytest.mark.django_db
def test_no_label_has_an_id_or_a_reference() -> None:
    fill(2)
    rows.endpoint(status="disabled")
    rows.payment(payer={"email": "ana@example.com"})
    text = generate_latest(_registry()).decode()
    assert not re.search(r'"[^"]*(?:evt|pay|pout|ref|dep|whk|op)_[^"]*"', re.sub(r'"operation_\w+"', "", text))
    assert "ana@" not in text
    assert "https://" not in text


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PaymentsCollector())
    return registry


def test_it_can_be_imported_before_django_is_ready() -> None:
    code = (
        "from prometheus_client import CollectorRegistry\n"
        "from payments_integration.contrib.prometheus import PaymentsCollector\n"
        "CollectorRegistry(auto_describe=True).register(PaymentsCollector())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_the_extra_the_error_names_it() -> None:
    code = (
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'prometheus_client' else found(name, *rest)\n"
        "import payments_integration.contrib.prometheus\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert 'pip install "payments-integration[prometheus]"' in ended.stderr
