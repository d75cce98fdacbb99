"""Which rows lead to problems that need attention, and which do not."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import health, inbox, projection
from payments_integration.attention import ACTIONS
from payments_integration.enums import EVENT_TYPES
from payments_integration.health import AccountStatistics
from payments_integration.models import (
    AccountState,
    Event,
    EventState,
    OperationState,
    RunState,
    WebhookEndpoint,
)
from payments_integration.signals import Reason
from tests import factories
from tests.conftest import Receiver
from tests.factories import rows

pytestmark = pytest.mark.django_db

PACKAGE = Path(health.__file__).parents[1]


def ago(**span: float) -> Any:
    return timezone.now() - timedelta(**span)


def running_resync() -> None:
    AccountState.objects.update(
        resync_due_at=ago(minutes=11), sweep_claimed_until=timezone.now() + timedelta(minutes=20)
    )


def problems(account: str = "default") -> dict[str, health.Problem]:
    found = health.examine(account).accounts[account].problems
    assert len({problem.code for problem in found}) == len(found)
    return {problem.code: problem for problem in found}


def statistics(account: str = "default") -> AccountStatistics:
    return health.examine(account).accounts[account].statistics


@pytest.fixture(autouse=True)
def _still() -> Iterator[None]:
    """Time stands still, so that ages do not depend on the machine."""
    with time_machine.travel(timezone.now(), tick=False):
        yield


@pytest.fixture(autouse=True)
def well(_still: None) -> None:
    """Both accounts were reconciled a minute ago."""
    for account in ("default", "second"):
        AccountState.objects.create(account=account, watermark=ago(seconds=60), clock_offset=0.5)
        for kind in ("events", "objects", "balances"):
            rows.run(account=account, kind=kind, started_at=ago(seconds=60), pages=1)


def recent(**fields: Any) -> Event:
    at = fields.pop("at", timezone.now())
    return rows.event(**{"created_at": at, "received_at": at, **fields})


def endpoint(**fields: Any) -> WebhookEndpoint:
    return rows.endpoint(
        **{
            "events": list(EVENT_TYPES),
            "secret_token": "",
            "previous_secret_token": "",
            "secret_since": None,
            **fields,
        }
    )


def test_nothing_needs_attention_in_a_healthy_system() -> None:
    report = health.examine()
    assert report.ok
    assert list(report.accounts) == ["default", "second"]
    assert not report.problems
    assert not report.removed_accounts


def test_an_account_that_is_not_configured_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured):
        health.examine("missing")


REFUSED = "AuthenticationFailed: api_key_invalid (HTTP 401, request req_1): The API key is missing or wrong."


def delivered_once() -> None:
    """A delivery of an earlier day."""
    recent(source="webhook", at=ago(days=2))


#: The rows that lead to each problem, and its count.
BREAK: dict[Reason, tuple[Callable[[], object], int]] = {
    Reason.OPERATION_NEEDS_RESOLUTION: (lambda: rows.operation(state=OperationState.NEEDS_PERSON), 1),
    Reason.OPERATION_AWAITS_APPROVAL: (lambda: rows.operation(state=OperationState.AWAITING_APPROVAL), 1),
    Reason.OPERATION_UNKNOWN: (
        lambda: rows.operation(
            state=OperationState.UNKNOWN,
            first_sent_at=ago(minutes=61),
            next_attempt_at=timezone.now() + timedelta(hours=1),
        ),
        1,
    ),
    Reason.OPERATIONS_DUE: (lambda: rows.operation(state=OperationState.DUE, created_at=ago(minutes=11)), 1),
    Reason.DISPATCH_PARKED: (lambda: (recent(state=EventState.PARKED), rows.change(state=EventState.PARKED)), 2),
    Reason.EVENT_QUARANTINED: (lambda: recent(state=EventState.QUARANTINED), 1),
    Reason.EVENT_NOT_APPLIED: (lambda: recent(state=EventState.PENDING, attempts=1, at=ago(hours=1)), 1),
    Reason.EVENTS_PENDING: (lambda: recent(state=EventState.PENDING, at=ago(minutes=11)), 1),
    Reason.EVENTS_UNDISPATCHED: (
        lambda: (
            recent(state=EventState.APPLIED, attempts=3, at=ago(minutes=11)),
            rows.change(state=EventState.APPLIED, recorded_at=ago(minutes=1)),
        ),
        2,
    ),
    Reason.EVENTS_HELD: (
        lambda: (delivered_once(), recent(state=EventState.HELD, source="reconciliation", at=ago(minutes=11))),
        1,
    ),
    Reason.REFRESHES_DUE: (lambda: rows.due(due_at=ago(minutes=11)), 1),
    Reason.REFRESHES_FAIL: (lambda: rows.due(due_at=timezone.now() + timedelta(hours=1), attempts=10), 1),
    Reason.WATERMARK_OLD: (lambda: AccountState.objects.update(watermark=ago(minutes=61)), 1),
    Reason.NEVER_RECONCILED: (lambda: AccountState.objects.update(watermark=None), 1),
    Reason.GAP_TOO_LONG: (lambda: AccountState.objects.update(resync_due_at=ago(minutes=11)), 1),
    Reason.PROVIDER_CLOCK: (lambda: AccountState.objects.update(clock_offset=-61.0), 1),
    Reason.RUNS_STOPPED: (
        lambda: rows.ReconciliationRun.objects.filter(kind="objects").update(started_at=ago(minutes=61)),
        1,
    ),
    Reason.RUNS_FAIL: (
        lambda: (
            rows.ReconciliationRun.objects.filter(kind="events").update(started_at=ago(minutes=61)),
            [rows.run(kind="events", state="failed", error="NoAnswer: …", started_at=ago(minutes=n)) for n in (9, 4)],
        ),
        2,
    ),
    Reason.ENDPOINT: (lambda: endpoint(status="disabled"), 1),
    Reason.SECRET_UNREADABLE: (lambda: endpoint(secret_token="no-token"), 1),
    Reason.DELIVERIES_MISSING: (lambda: recent(source="reconciliation"), 1),
    Reason.API_KEY_REFUSED: (lambda: rows.run(state="failed", error=REFUSED, started_at=ago(seconds=5)), 1),
    Reason.PROVIDER_UNREACHABLE: (
        lambda: rows.run(kind="balances", state="failed", error="NoAnswer: …", started_at=ago(seconds=5)),
        1,
    ),
    Reason.ERASURE_UNFINISHED: (lambda: rows.erasure(requested_at=ago(hours=25)), 1),
}


@pytest.mark.any_database
@pytest.mark.parametrize("code", BREAK)
def test_each_problem_has_its_count_and_what_to_do(code: Reason) -> None:
    breaking, count = BREAK[code]
    breaking()
    found = problems()
    assert set(found) == {code}
    assert found[code].count == count
    assert found[code].action == ACTIONS[code]
    assert not health.examine().ok
    json = health.examine().as_json()["accounts"]["default"]
    assert not json["ok"]
    assert [problem["code"] for problem in json["problems"]] == [code.value]


#: Rows that are on their way, or passing failures.
PASSING: dict[str, Callable[[], object]] = {
    "pending": lambda: recent(state=EventState.PENDING, at=ago(minutes=9)),
    "dispatched again soon": lambda: recent(state=EventState.APPLIED, attempts=4, at=ago(minutes=9)),
    "unknown": lambda: rows.operation(
        state=OperationState.UNKNOWN, created_at=timezone.now(), first_sent_at=ago(minutes=50)
    ),
    "not due": lambda: rows.operation(
        state=OperationState.DUE, created_at=ago(hours=2), next_attempt_at=timezone.now() + timedelta(minutes=5)
    ),
    "refresh that waits": lambda: rows.due(due_at=timezone.now() + timedelta(minutes=5), attempts=3),
    "a resync that runs": running_resync,
    "one failure": lambda: rows.run(kind="events", state="failed", error="x", started_at=ago(seconds=10)),
    "a pass that was skipped": lambda: rows.run(kind="events", state=RunState.SKIPPED, started_at=ago(seconds=10)),
    "old runs of other kinds": lambda: rows.run(kind="full", started_at=ago(days=300)),
    "an endpoint that was deleted": lambda: endpoint(status="disabled", deleted_at=timezone.now()),
    "few recovered": lambda: (delivered_once(), [recent(source="reconciliation") for _ in range(9)]),
    "a key that works again": lambda: (
        rows.run(kind="events", state="failed", error=REFUSED, started_at=ago(seconds=20)),
        rows.run(kind="balances", started_at=ago(seconds=10)),
    ),
    "deliveries and recovered": lambda: [recent(source=by) for by in ["reconciliation"] * 20 + ["webhook"]],
    "old events recovered": lambda: [recent(source="reconciliation", at=ago(days=2)) for _ in range(20)],
    "an erasure": lambda: rows.erasure(requested_at=ago(hours=23)),
    "done with": lambda: (recent(), rows.operation(), rows.change()),
}


@pytest.mark.parametrize("what", PASSING)
def test_work_that_continues_by_itself_is_no_problem(what: str) -> None:
    PASSING[what]()
    assert problems() == {}


@pytest.mark.case(110)
def test_events_that_are_never_delivered_are_a_problem_from_the_first_on() -> None:
    recent(source="reconciliation")
    found = problems()[Reason.DELIVERIES_MISSING]
    assert found.message == "1 events of the last day exist, and none was ever delivered by webhook"
    assert "URL and secret" in found.action
    assert "routes" in found.action
    delivered_once()
    assert problems() == {}
    for _ in range(9):
        recent(source="reconciliation")
    assert problems()[Reason.DELIVERIES_MISSING].message.startswith("none of the 10 events")


@pytest.mark.case(110)
def test_deliveries_that_ended_an_hour_ago_are_a_problem_on_the_same_day() -> None:
    """Such as with a new signing secret that only the provider knows."""
    recent(source="webhook", at=ago(hours=3))
    for minutes in range(70, 0, -7):
        recent(source="reconciliation", at=ago(minutes=minutes))
    assert problems()[Reason.DELIVERIES_MISSING].message == "none of the newest 10 events was delivered by webhook"
    recent(source="webhook")
    assert problems() == {}


@pytest.mark.case(110)
def test_what_one_pass_finds_after_an_outage_is_no_problem() -> None:
    recent(source="webhook", at=ago(hours=9))
    for minutes in range(480, 240, -10):
        recent(source="reconciliation", created_at=ago(minutes=minutes), received_at=ago(hours=3))
    assert problems() == {}


@pytest.mark.case(111)
def test_a_refused_key_is_a_problem_at_once() -> None:
    rows.run(kind="objects", state="failed", error=REFUSED, started_at=ago(seconds=5))
    found = problems()
    assert set(found) == {Reason.API_KEY_REFUSED}
    assert "api_key_invalid" in found[Reason.API_KEY_REFUSED].message


@pytest.mark.case(111)
def test_an_operation_shows_a_refused_key_before_the_next_pass() -> None:
    refusal = {"status_code": 401, "type": "authentication_error", "code": "api_key_revoked", "message": "Revoked."}
    rows.operation(state=OperationState.REJECTED, error=refusal, closed_at=ago(seconds=30), created_at=ago(seconds=31))
    assert "api_key_revoked" in problems()[Reason.API_KEY_REFUSED].message
    rows.operation(state=OperationState.DONE, closed_at=ago(seconds=20), created_at=ago(seconds=21))
    assert problems() == {}
    refusal = {"status_code": 422, "type": "invalid_state_error", "code": "payment_not_refundable", "message": "No."}
    rows.operation(state=OperationState.REJECTED, error=refusal, closed_at=ago(seconds=10), created_at=ago(seconds=11))
    assert problems() == {}


@pytest.mark.case(111)
def test_a_pass_that_is_newer_than_a_refused_operation_counts() -> None:
    refusal = {"status_code": 401, "type": "authentication_error", "code": "api_key_revoked", "message": "Revoked."}
    rows.operation(state=OperationState.REJECTED, error=refusal, closed_at=ago(seconds=61), created_at=ago(seconds=70))
    assert problems() == {}


def test_problems_of_one_account_do_not_affect_the_other() -> None:
    for breaking, _ in BREAK.values():
        breaking()
    AccountState.objects.filter(pk="second").update(watermark=ago(seconds=60), resync_due_at=None, clock_offset=0.0)
    rows.ReconciliationRun.objects.filter(account="second").update(started_at=ago(seconds=60))
    assert problems("second") == {}
    report = health.examine()
    assert report.accounts["default"].problems
    assert not report.ok


def test_the_backlog_is_as_old_as_its_oldest_row() -> None:
    recent(state=EventState.PENDING, at=ago(seconds=100))
    recent(state=EventState.PENDING, at=ago(seconds=300))
    recent(state=EventState.APPLIED, at=ago(seconds=50))
    rows.due(due_at=ago(seconds=200))
    rows.due(due_at=timezone.now() + timedelta(seconds=50))
    rows.operation(state=OperationState.UNKNOWN, next_attempt_at=ago(seconds=20))
    backlog = statistics().backlog
    assert backlog.age_seconds == pytest.approx(300, abs=5)
    assert (backlog.pending.count, backlog.pending.age_seconds) == (2, pytest.approx(300, abs=5))
    assert (backlog.undispatched.count, backlog.undispatched.age_seconds) == (1, pytest.approx(50, abs=5))
    assert (backlog.refreshes.count, backlog.refreshes.age_seconds) == (1, pytest.approx(200, abs=5))
    assert (backlog.operations.count, backlog.operations.age_seconds) == (1, pytest.approx(20, abs=5))
    assert (backlog.held.count, backlog.held.age_seconds) == (0, None)


def test_the_backlog_follows_an_event_until_it_is_dispatched(receiver: Receiver, woken: list[str]) -> None:
    inbox.receive("default", factories.body(factories.life()[0]))
    assert (statistics().backlog.pending.count, statistics().backlog.undispatched.count) == (1, 0)
    inbox.process()
    assert (statistics().backlog.pending.count, statistics().backlog.undispatched.count) == (0, 1)
    inbox.dispatch()
    assert statistics().backlog.age_seconds is None
    assert statistics().last_webhook_age_seconds == pytest.approx(0, abs=5)


def test_the_reorder_window_is_added_to_the_backlog_alert(settings: Any) -> None:
    recent(state=EventState.PENDING, at=ago(seconds=100))
    options = settings.PAYMENTS_INTEGRATION
    settings.PAYMENTS_INTEGRATION = {**options, "BACKLOG_ALERT": 99}
    assert set(problems()) == {Reason.EVENTS_PENDING}
    settings.PAYMENTS_INTEGRATION = {**options, "BACKLOG_ALERT": 99, "PROCESSING": "celery", "REORDER_WINDOW": 60}
    assert problems() == {}


def test_ages_of_the_last_events_ignore_future_times() -> None:
    recent(source="webhook", at=ago(seconds=500))
    recent(source="reconciliation", at=ago(seconds=100))
    recent(source="webhook", account="second")
    recent(source="webhook", created_at=timezone.now() + timedelta(days=3))  # its clock is wrong
    found = statistics()
    assert found.last_event_age_seconds == pytest.approx(100, abs=5)
    assert found.last_webhook_age_seconds == pytest.approx(500, abs=5)
    assert (found.webhooks_last_day, found.recovered_last_day) == (1, 1)


def test_rare_passes_are_found_among_many_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.health.statistics._RUNS", 3)
    rows.run(kind="full", started_at=ago(days=40), drifted=9)
    rows.run(kind="full", state="failed", error="Timeout", started_at=ago(days=2), drifted=3, repaired=1)
    rows.run(kind="balances", state="failed", error="NoAnswer", started_at=ago(seconds=30))
    for _ in range(5):
        rows.run(kind="events", started_at=ago(seconds=20))
    found = statistics()
    assert (found.runs.full.state, found.runs.full.error, found.runs.full.failures) == ("failed", "Timeout", 1)
    assert found.runs.full.done_age_seconds == pytest.approx(40 * 86400, abs=5)
    assert (found.runs.balances.error, found.runs.balances.failures) == ("NoAnswer", 1)
    assert found.runs.balances.done_age_seconds == pytest.approx(60, abs=5)
    assert found.runs.objects.age_seconds == pytest.approx(60, abs=5)
    assert (found.drift.drifted, found.drift.repaired) == (3, 1)


def test_what_was_recorded_while_our_clock_was_ahead_hides_nothing() -> None:
    rows.operation(created_at=ago(days=-30), closed_at=ago(days=-30))
    for kind in ("events", "objects", "balances"):
        rows.run(kind=kind, started_at=timezone.now() + timedelta(days=30))
    rows.run(kind="events", state="failed", error=REFUSED, started_at=timezone.now())
    rows.ReconciliationRun.objects.filter(kind="objects", started_at__lt=timezone.now()).update(
        started_at=ago(minutes=61)
    )
    assert set(problems()) == {Reason.API_KEY_REFUSED, Reason.RUNS_STOPPED}


def test_passes_that_are_killed_each_time_are_a_problem() -> None:
    rows.ReconciliationRun.objects.filter(kind="balances").update(started_at=ago(minutes=90))
    rows.run(kind="balances", state="running", started_at=ago(minutes=20))
    assert not problems(), "it may still run"
    rows.run(kind="balances", state="running", started_at=ago(minutes=10))
    found = problems()
    assert set(found) == {Reason.RUNS_FAIL}
    assert found[Reason.RUNS_FAIL].count == 1, "the last one may still run"
    assert "pass over balances" in health.explain("default", Reason.RUNS_FAIL)[0]


@pytest.mark.parametrize("kind", ["objects", "balances"])
def test_passes_that_never_ran_are_a_problem_an_hour_after_the_first_contact(kind: str) -> None:
    rows.ReconciliationRun.objects.filter(kind=kind).delete()
    AccountState.objects.update(first_contact_at=ago(minutes=59))
    assert not problems()
    AccountState.objects.update(first_contact_at=ago(minutes=61))
    assert problems()[Reason.RUNS_STOPPED].message == f"the reconciliation of {kind} never ran"


def test_sweeps_that_are_never_complete_are_a_problem_although_passes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.health.statistics._RUNS", 3)
    AccountState.objects.update(first_contact_at=ago(hours=47))
    rows.ReconciliationRun.objects.filter(kind="objects").update(pages=0)
    rows.run(kind="objects", state="failed", error="pay_1: too long\n…", pages=3, started_at=ago(hours=3))
    assert not problems()
    AccountState.objects.update(first_contact_at=ago(hours=49))
    message = "no sweep of all objects was complete for 2 d (pay_1)"
    assert problems()[Reason.RUNS_FAIL].message == message
    assert set(problems("second")) == {Reason.RUNS_FAIL}, "its passes read no page"
    AccountState.objects.update(first_contact_at=ago(days=90))
    rows.run(kind="objects", pages=3, started_at=ago(hours=49))
    assert problems()[Reason.RUNS_FAIL].message == message
    AccountState.objects.update(resync_due_at=timezone.now())
    assert not problems()
    AccountState.objects.update(resync_due_at=None)
    rows.ReconciliationRun.objects.filter(started_at__gt=ago(hours=2), kind="objects").delete()
    assert set(problems()) == {Reason.RUNS_STOPPED}
    rows.run(kind="objects", started_at=ago(seconds=60))
    assert set(problems()) == {Reason.RUNS_FAIL}
    rows.run(kind="full", started_at=ago(hours=47))
    assert not problems()


def test_the_lag_of_webhooks_is_measured_on_one_clock() -> None:
    for late in (7, 10, 60):
        recent(created_at=ago(hours=1), received_at=ago(hours=1) + timedelta(seconds=late), source="webhook")
    recent(created_at=ago(hours=1), source="reconciliation")
    recent(created_at=ago(days=2), source="webhook")
    lag = statistics().webhook_lag
    assert lag.median_seconds == pytest.approx(10.5, abs=0.1)
    assert lag.longest_seconds == pytest.approx(60.5, abs=0.1)
    assert statistics("second").webhook_lag.median_seconds is None


def test_statistics_of_passes_drift_and_clock() -> None:
    rows.run(kind="objects", drifted=5, repaired=4, started_at=ago(hours=3))
    rows.run(kind="objects", drifted=7, repaired=7, started_at=ago(days=8))
    rows.run(kind="events", state="failed", error="NoAnswer: timeout", started_at=ago(seconds=5))
    rows.run(kind="events", state=RunState.SKIPPED, started_at=timezone.now())
    found = statistics()
    assert (found.drift.drifted, found.drift.repaired) == (5, 4)
    events = found.runs.events
    assert (events.state, events.error, events.failures) == ("failed", "NoAnswer: timeout", 1)
    assert events.age_seconds == pytest.approx(5, abs=4)
    assert events.done_age_seconds == pytest.approx(60, abs=5)
    assert found.runs.full.age_seconds is None
    assert found.clock_offset_seconds == 0.5
    assert found.watermark_age_seconds == pytest.approx(60, abs=5)


def test_a_resync_that_keeps_failing_is_a_problem(woken: list[str]) -> None:
    running_resync()
    rows.run(kind="full", state="failed", error="x", started_at=ago(minutes=10))
    assert set(problems()) == {Reason.GAP_TOO_LONG}


class TestEndpoints:
    @pytest.fixture(autouse=True)
    def _no_secrets_in_the_setting(self, settings: Any) -> None:
        options = settings.PAYMENTS_INTEGRATION
        accounts = {alias: {**entry, "WEBHOOK_SECRETS": []} for alias, entry in options["ACCOUNTS"].items()}
        settings.PAYMENTS_INTEGRATION = {**options, "ACCOUNTS": accounts}

    def test_an_account_without_endpoint_is_a_problem(self) -> None:
        assert set(problems()) == {Reason.NO_ENDPOINT}

    def test_an_endpoint_without_known_secret_is_a_problem(self) -> None:
        endpoint()
        assert set(problems()) == {Reason.SECRET_MISSING}

    def test_an_endpoint_of_another_system_is_none_of_this_site(self, settings: Any) -> None:
        row = endpoint(url="https://erp.example/hooks/", events=["payment.succeeded"])
        assert set(problems()) == {Reason.NO_ENDPOINT}
        projection.store_secret("default", row.pk, "whsec_first")
        assert set(problems()) == {Reason.ENDPOINT}
        WebhookEndpoint.objects.update(secret_token="")
        settings.ROOT_URLCONF = "a.module.that.does.not.exist"
        assert set(problems()) == {Reason.ENDPOINT}

    def test_a_relay_in_front_of_the_site_is_no_other_system(self, settings: Any) -> None:
        settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]["WEBHOOK_SECRETS"] = ["whsec_of_the_relay"]
        endpoint(id="whk_relay", url="https://relay.example/abc", status="disabled")
        assert set(problems()) == {Reason.ENDPOINT}
        endpoint(id="whk_here")
        assert problems() == {}

    def test_an_endpoint_that_is_gone_is_a_problem(self) -> None:
        endpoint(gone_at=timezone.now())
        assert "does not list" in problems()[Reason.ENDPOINT].message

    def test_an_endpoint_without_all_event_types_is_a_problem(self) -> None:
        endpoint(events=[name for name in EVENT_TYPES if name != "payment.chargeback"])
        assert "does not subscribe to payment.chargeback" in problems()[Reason.ENDPOINT].message

    def test_the_ages_of_an_endpoints_secrets(self) -> None:
        row = endpoint()
        projection.store_secret("default", row.pk, "whsec_first")
        WebhookEndpoint.objects.update(secret_since=ago(days=100))
        assert statistics().endpoints[0].secret_age_seconds == pytest.approx(8_640_000, abs=5)
        assert statistics().endpoints[0].previous_secret_seconds_left is None
        projection.store_secret("default", row.pk, "whsec_second")
        (found,) = statistics().endpoints
        assert found.secret_age_seconds == pytest.approx(0, abs=5)
        assert found.previous_secret_seconds_left == pytest.approx(86_400, abs=5)
        assert problems() == {}
        assert "whsec" not in str(health.examine().as_json())

    def test_a_previous_secret_that_cannot_be_decrypted_is_a_problem(self, settings: Any) -> None:
        row = endpoint()
        settings.SECRET_KEY = "another-key-" * 5
        projection.store_secret("default", row.pk, "whsec_first")
        token = WebhookEndpoint.objects.get().secret_token
        settings.SECRET_KEY = "the-key-of-now-" * 5
        projection.store_secret("default", row.pk, "whsec_second")
        assert problems() == {}
        WebhookEndpoint.objects.update(
            previous_secret_token=token, previous_secret_until=timezone.now() + timedelta(hours=1)
        )
        assert set(problems()) == {Reason.SECRET_UNREADABLE}
        WebhookEndpoint.objects.update(previous_secret_until=ago(hours=1))
        assert problems() == {}


def test_problems_of_one_code_are_merged() -> None:
    """Monitoring names a metric by account and code."""
    first, second = endpoint(status="disabled"), endpoint(gone_at=timezone.now())
    rows.ReconciliationRun.objects.filter(account="default").update(started_at=ago(hours=3))
    found = problems()
    assert found[Reason.ENDPOINT].count == 2
    assert f"{first.pk}: " in found[Reason.ENDPOINT].message
    assert f"; {second.pk}: " in found[Reason.ENDPOINT].message
    assert found[Reason.RUNS_STOPPED].count == 3


def test_unfinished_work_of_removed_accounts_is_a_problem() -> None:
    AccountState.objects.create(account="settled")
    rows.operation(account="gone", state=OperationState.UNKNOWN)
    recent(account="gone", state=EventState.HELD)
    rows.change(account="gone", state=EventState.PARKED)
    rows.due(account="gone")
    rows.due(account="old")
    # Work of a configured account is not counted.
    rows.due(due_at=timezone.now())
    rows.operation(state=OperationState.DUE, created_at=timezone.now())
    recent(state=EventState.PENDING)
    rows.change(state=EventState.APPLIED, recorded_at=timezone.now())
    report = health.examine()
    assert {alias: (row.operations, row.events, row.refreshes) for alias, row in report.removed_accounts.items()} == {
        "gone": (1, 2, 1),
        "old": (0, 0, 1),
        "settled": (0, 0, 0),
    }
    (problem,) = report.problems
    assert (problem.code, problem.count) == (Reason.REMOVED_ACCOUNT, 3)
    assert not report.ok
    assert health.examine("default").ok


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (rows.erasure, "1 open erasures"),
        (partial(rows.payment, status="on_hold"), "1 open payments, payouts and refunds"),
        (partial(rows.payout, status="processing"), "1 open payments, payouts and refunds"),
        (partial(rows.refund, status="created"), "1 open payments, payouts and refunds"),
        (rows.endpoint, "1 webhook endpoints"),
    ],
)
def test_an_alias_that_was_lost_from_the_setting_is_a_problem(make: Callable[..., Any], shown: str) -> None:
    make(account="gone")
    (problem,) = health.examine().problems
    assert (problem.code, problem.count) == (Reason.REMOVED_ACCOUNT, 1)
    assert problem.message == f"the account gone is not configured any more and has {shown}"


def test_a_closed_account_needs_nothing() -> None:
    rows.erasure(account="gone", done_at=timezone.now())
    rows.payment(account="gone", status="succeeded")
    rows.payout(account="gone", status="returned")
    rows.refund(account="gone", status="failed")
    rows.endpoint(account="gone", deleted_at=timezone.now())
    rows.endpoint(account="gone", gone_at=timezone.now())
    AccountState.objects.create(account="gone")
    report = health.examine()
    assert list(report.removed_accounts) == ["gone"]
    assert not report.problems


def test_an_empty_setting_is_a_problem_if_an_account_is_stored(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {}}
    AccountState.objects.all().delete()
    WebhookEndpoint.objects.all().delete()
    assert health.examine().ok
    AccountState.objects.create(account="default")
    (problem,) = health.examine().problems
    assert problem.code == Reason.REMOVED_ACCOUNT
    assert problem.message == "no account is configured, and the database has rows of default"


def fill(number: int) -> None:
    for state in EventState:
        for _ in range(number):
            recent(state=state)
            rows.change(state=state)
    for state in OperationState:
        for _ in range(number):
            rows.operation(state=state)
    for _ in range(number):
        rows.run()
        rows.due()
        endpoint()
        rows.erasure()
        AccountState.objects.create(account=f"removed-{AccountState.objects.count()}")


def test_health_takes_a_fixed_number_of_queries() -> None:
    counts = []
    for number in (1, 30):
        fill(number)
        with CaptureQueriesContext(connection) as queries:
            health.examine("default")
        counts.append(len(queries))
    assert counts == [7, 7]
    with CaptureQueriesContext(connection) as queries:
        health.examine()
    assert len(queries) == 9, "one more, because accounts were removed"


def test_more_accounts_take_no_more_queries(settings: Any) -> None:
    options = settings.PAYMENTS_INTEGRATION

    def configure(count: int) -> None:
        account = options["ACCOUNTS"]["default"]
        others = {f"shop-{number}": {**account, "API_KEY": f"sk_test_{number}"} for number in range(count - 1)}
        settings.PAYMENTS_INTEGRATION = {**options, "ACCOUNTS": {"default": account, **others}}

    def examined() -> tuple[int, list[str]]:
        with CaptureQueriesContext(connection) as queries:
            report = health.examine()
        waiting = [alias for alias, found in report.accounts.items() if found.statistics.backlog.pending.count]
        return len(queries), waiting

    configure(40)
    recent(account="shop-38", state=EventState.PENDING, at=ago(minutes=11))
    assert examined() == (9, ["shop-38"])
    configure(52)
    recent(account="shop-50", state=EventState.PENDING, at=ago(minutes=11))
    assert examined() == (11, ["shop-38", "shop-50"]), "two of the statements in two parts"


def test_counting_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.health.backlogs.LIMIT", 3)
    for _ in range(5):
        recent(state=EventState.PENDING)
        rows.change(state=EventState.APPLIED)
    assert statistics().backlog.pending.count == 3
    assert statistics().backlog.undispatched.count == 3


def test_many_operations_of_one_state_hide_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payments_integration.health.backlogs.LIMIT", 3)
    states = (
        OperationState.DUE,
        OperationState.UNKNOWN,
        OperationState.NEEDS_PERSON,
        OperationState.AWAITING_APPROVAL,
    )
    for state in states:
        for _ in range(4):
            rows.operation(state=state, next_attempt_at=ago(minutes=1))
    found = statistics()
    assert [waiting["count"] for waiting in dataclasses.asdict(found.operations).values()] == [3] * 4
    assert found.backlog.operations.count == 6, "due and unknown"


def test_health_writes_nothing() -> None:
    fill(2)
    with CaptureQueriesContext(connection) as queries:
        health.examine()
    assert [query for query in queries if not query["sql"].startswith("SELECT")] == []


def test_every_reason_has_an_action_and_is_used() -> None:
    assert set(ACTIONS) == set(Reason)
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    source = re.sub(r"^ACTIONS: .*?^}$", "", source, flags=re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"\bReason\.([A-Z_]+)\b", source)) == {reason.name for reason in Reason}


def test_attention_is_only_sent_with_a_reason() -> None:
    """Every sender of ``attention`` uses a code of Reason."""
    calls = [
        call
        for path in PACKAGE.rglob("*.py")
        for call in re.findall(
            r"(?<!def )\b(?:call_attention|_attention)\(\s*(?:\w+\([^)]*\)|[\w.[\]-]+),\s*([^,\s]+)", path.read_text()
        )
    ]
    assert len(calls) >= 9
    assert [call for call in calls if not call.startswith("Reason.") and call != "reason"] == []


def test_an_unreadable_database_is_reported_with_the_code_of_its_error_and_without_its_text() -> None:
    """A statement_timeout of the server ends health itself, and the database neither starts nor migrates out of it."""

    class QueryCanceled(Exception):
        sqlstate = "57014"

    error = OperationalError("canceling statement due to statement timeout, db.internal")
    error.__cause__ = QueryCanceled()
    [problem] = health.unreachable(timezone.now(), error).problems
    assert problem.message == "the database could not be read: OperationalError 57014"
    assert "what the code names" in problem.action
