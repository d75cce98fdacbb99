"""``payments_health``: its output, its JSON and its exit codes."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from payments_integration.health import report as reports
from payments_integration.models import AccountState, EventState, OperationState, ReconciliationRun
from tests.factories import rows

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str) -> tuple[int, str]:
    """(exit code, what it prints)"""
    out = io.StringIO()
    try:
        call_command("payments_health", *words, stdout=out)
    except SystemExit as end:
        return int(str(end.code)), out.getvalue()
    return 0, out.getvalue()


@pytest.fixture(autouse=True)
def well() -> None:
    at = timezone.now() - timedelta(minutes=3)
    for account in ("default", "second"):
        AccountState.objects.create(account=account, watermark=at)
        for kind in ("events", "objects", "balances"):
            rows.run(account=account, kind=kind, started_at=at)


def test_health_exits_with_0_if_nothing_needs_attention() -> None:
    code, output = run()
    assert code == 0
    assert "default: all is well" in output
    assert "second: all is well" in output
    assert "complete up to 3 min ago" in output


def test_operations_that_await_approval_need_attention() -> None:
    for hours in (3, 30):
        rows.operation(
            state=OperationState.AWAITING_APPROVAL, created_at=timezone.now() - timedelta(hours=hours),
            first_sent_at=None,
        )  # fmt: skip
    code, output = run()
    assert code == 1
    assert "2 operations wait for approval, the oldest for 30 h" in output
    waiting = json.loads(run("--json")[1])["accounts"]["default"]["operations"]["awaiting_approval"]
    assert waiting["count"] == 2
    assert 30 * 3600 <= waiting["age_seconds"] < 30 * 3600 + 60


def test_each_problem_is_shown_with_what_to_do() -> None:
    rows.operation(state=OperationState.NEEDS_PERSON, created_at=timezone.now() - timedelta(hours=5))
    rows.endpoint(events=[], secret_token="")
    code, output = run()
    assert code == 1
    assert "default: needs attention" in output
    assert "second: all is well" in output
    (line,) = [line.strip() for line in output.splitlines() if "operation_needs_resolution" in line]
    assert line.startswith(
        "operation_needs_resolution: 1 operations need a resolution by a person, the oldest for 5 h."
    )
    assert "To do: look it up, then resolve it (admin: Operations" in line
    assert "does not subscribe to" in output
    code, output = run("--account", "second")
    assert code == 0
    assert "default" not in output


def test_explain_lists_the_rows_of_each_problem() -> None:
    operation = rows.operation(state=OperationState.NEEDS_PERSON, error={"code": "internal_error", "message": "Ana"})
    frames = 'Traceback (most recent call last):\n  File "/srv/shop/handlers.py", line 7, in paid\n'
    handler = f"{frames}KeyError: 'Ana'\nAna:\n"
    parked = [rows.event(state=EventState.PARKED, attempts=6, error=handler) for _ in range(7)]
    change = rows.change(state=EventState.PARKED, attempts=6, error=handler)
    code, output = run("--explain")
    assert code == 1
    lines = output.splitlines()
    assert f"    {operation.pk}: create_refund of USD\xa05.00, needs_person, asked for at " in output
    assert "; the provider: internal_error" in output
    shown = [line for line in lines if line.endswith("; attempt 6 failed: KeyError in /srv/shop/handlers.py, line 7")]
    assert [line.split(":")[0].strip() for line in shown] == [*(row.pk for row in parked[:5]), f"change {change.pk}"]
    assert lines[-1] == "--explain lists the rows. The runbook (docs/runbook.md) has an entry for each code."
    assert "Ana" not in output
    assert "KeyError" not in run()[1]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("IntegrityError: Duplicate entry 'ana@luna.example' for key", ", failed: IntegrityError"),
        ("NoAnswer: GET /events: ConnectionError", ", failed: NoAnswer: GET /events: ConnectionError"),
    ],
)
def test_explain_shows_the_text_of_our_own_errors_only(error: str, shown: str) -> None:
    now = timezone.now()
    ReconciliationRun.objects.filter(kind="events").delete()
    for minutes in (10, 5):
        began = now - timedelta(minutes=minutes)
        ReconciliationRun.objects.create(
            account="default", kind="events", state="failed", started_at=began, finished_at=began, error=error
        )
    _, output = run("--explain")
    assert "keeps failing" in output
    assert [line for line in output.splitlines() if line.endswith(shown)]
    assert "ana@" not in output


def test_explain_names_the_rows_of_removed_accounts() -> None:
    operation = rows.operation(account="gone", state=OperationState.UNKNOWN)
    assert f"    {operation.pk}: create_refund" in run("--explain")[1]


def test_a_secret_that_is_not_stored_may_be_in_the_settings(settings: Any) -> None:
    endpoint = rows.endpoint(secret_token="")
    assert f"endpoint {endpoint.pk} (active) {endpoint.url}: secret not stored, WEBHOOK_SECRETS are tried" in run()[1]
    account = {**settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"], "WEBHOOK_SECRETS": []}
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": account}}
    assert f"endpoint {endpoint.pk} (active) {endpoint.url}: secret not known" in run()[1]


def test_removed_accounts_are_shown() -> None:
    rows.operation(account="gone", state=OperationState.UNKNOWN)
    code, output = run()
    assert code == 1
    assert "gone (not configured any more): 1 open operations, 0 unfinished events, 0 due refreshes" in output
    assert "removed_account" in output


#: The documented structure, with the type of each value.
WAITING = {"count": int, "age_seconds": (float, type(None))}
RUN = {
    "age_seconds": (float, type(None)),
    "state": str,
    "error": str,
    "done_age_seconds": (float, type(None)),
    "failures": int,
}
PROBLEM = {"code": str, "count": int, "message": str, "action": str}
ACCOUNT = {
    "ok": bool,
    "last_event_age_seconds": (float, type(None)),
    "last_webhook_age_seconds": (float, type(None)),
    "webhooks_last_day": int,
    "recovered_last_day": int,
    "recovered_since_webhook": {"count": int, "seconds": float},
    "webhook_lag": {"median_seconds": (float, type(None)), "longest_seconds": (float, type(None))},
    "backlog": {
        "age_seconds": (float, type(None)),
        **dict.fromkeys(("pending", "undispatched", "held", "refreshes", "operations"), WAITING),
    },
    "operations": dict.fromkeys(("due", "unknown", "needs_person", "awaiting_approval"), WAITING),
    "events": dict.fromkeys(("not_applied", "parked", "quarantined"), WAITING),
    "provider_error": str,
    "refreshes_failing": int,
    "contact_age_seconds": (float, type(None)),
    "watermark_age_seconds": (float, type(None)),
    "resync_due": bool,
    "resync_waits_seconds": (float, type(None)),
    "clock_offset_seconds": (float, type(None)),
    "key_replaced": str,
    "runs": dict.fromkeys(("events", "objects", "full", "balances", "sweeps"), RUN),
    "drift": {"drifted": int, "repaired": int},
    "endpoints": [
        {
            "id": str,
            "url": str,
            "status": str,
            "problem": str,
            "secret_is_known": bool,
            "secret_is_readable": bool,
            "secret_age_seconds": (float, type(None)),
            "previous_secret_seconds_left": (float, type(None)),
        }
    ],
    "erasures": WAITING,
    "paid_twice": WAITING,
    "problems": [PROBLEM],
}
REPORT: dict[str, Any] = {
    "version": int,
    "ok": bool,
    "checked_at": str,
    "accounts": {"default": ACCOUNT, "second": ACCOUNT},
    "removed_accounts": {
        "gone": dict.fromkeys(("operations", "events", "refreshes", "erasures", "open_objects", "endpoints"), int)
    },
    "problems": [PROBLEM],
}


def assert_shape(value: Any, shape: Any, place: str = "$") -> None:
    if isinstance(shape, dict):
        assert isinstance(value, dict), place
        assert set(value) == set(shape), place
        for name, inner in shape.items():
            assert_shape(value[name], inner, f"{place}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), place
        for item in value:
            assert_shape(item, shape[0], f"{place}[]")
    else:
        assert isinstance(value, shape), place


def test_the_json_has_the_expected_structure() -> None:
    rows.operation(account="gone", state=OperationState.UNKNOWN)
    rows.endpoint(events=[], secret_token="")
    code, output = run("--json")
    assert code == 1
    report = json.loads(output)
    assert_shape(report, REPORT)
    assert report["version"] == 1
    assert report["accounts"]["default"]["endpoints"]
    assert report["accounts"]["default"]["problems"]
    assert report["problems"]


def test_the_page_on_the_report_has_every_class_of_it() -> None:
    page = (ROOT / "docs" / "api" / "health.md").read_text()
    shown = re.findall(r"^        - (\w+)$", page, re.MULTILINE)
    defined = {
        name for name, value in vars(reports).items() if isinstance(value, type) and dataclasses.is_dataclass(value)
    }
    # The JSON has the two parts of an account's report side by side.
    assert {*shown, "Report", "AccountReport"} == defined


def typed(*words: str, database: str, stdout: int = subprocess.PIPE, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a shell, with the settings of the example project."""
    return subprocess.run(
        check=False,
        args=[sys.executable, "-W", "error", "manage.py", "payments_health", *words],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": f"sqlite:///{database}", **env},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


@pytest.mark.any_database
@pytest.mark.parametrize("name", ["not/there/db.sqlite3", "empty.sqlite3"])
def test_a_database_that_is_down_or_empty_is_a_problem(tmp_path: Path, name: str) -> None:
    ended = typed(database=str(tmp_path / name))
    assert ended.returncode == 1
    assert re.search(r"could not be read: OperationalError SQLITE_\w+\. To do: start the database", ended.stdout)
    assert "Traceback" not in ended.stdout + ended.stderr


@pytest.mark.any_database
def test_a_database_that_is_down_is_shown_as_json(tmp_path: Path) -> None:
    ended = typed("--json", database=str(tmp_path / "not" / "there.sqlite3"))
    assert ended.returncode == 1
    report = json.loads(ended.stdout)
    assert (report["ok"], report["accounts"]) == (False, {})
    assert [problem["code"] for problem in report["problems"]] == ["database"]
    assert str(tmp_path) not in ended.stdout


@pytest.mark.any_database
@pytest.mark.parametrize("words", [["--account", "missing"], ["--nonsense"], ["--json", "--explain"]])
def test_wrong_arguments_exit_with_2(tmp_path: Path, words: list[str]) -> None:
    ended = typed(*words, database=str(tmp_path / "db.sqlite3"))
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


@pytest.mark.any_database
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_does_not_change_the_exit_code(tmp_path: Path, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = typed(database=str(tmp_path / "empty.sqlite3"), stdout=writing, PYTHONUNBUFFERED=unbuffered)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize("buffering", [1, -1])
def test_without_a_reader_all_is_still_well(buffering: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering) as out:
        call_command("payments_health", stdout=out)
        out.write("goes nowhere")
