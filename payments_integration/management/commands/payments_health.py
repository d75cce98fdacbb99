"""``payments_health``: whether anything needs attention, and what to do about it."""

from __future__ import annotations

import json
from typing import Any

from django.core.management import BaseCommand
from django.db import Error
from django.utils import timezone

from payments_integration import health
from payments_integration.health import AccountReport, Report
from payments_integration.management.arguments import add_account_argument, chosen_accounts


class Command(BaseCommand):
    help = (
        "Shows whether anything needs attention, and what to do about it. Exit code 0: nothing needs attention; 1: "
        "something does; 2: wrong arguments. Reads the database only."
    )
    # Cron would mail the warnings every time; manage.py check reports them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument("--json", action="store_true", help="print the statistics and problems as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen_accounts(options["account"])
        try:
            report = health.examine(options["account"])
        except Error as error:
            # Only the type: the message may show the database's address.
            report = health.unreachable(timezone.now(), type(error).__name__)
        if options["json"]:
            self.stdout.write(json.dumps(report.as_json(), indent=2))
        else:
            self._show(report)
        if not report.ok:
            raise SystemExit(1)

    def _show(self, report: Report) -> None:
        for alias, account in report.accounts.items():
            self.stdout.write(f"{alias}: {'needs attention' if account.problems else 'all is well'}")
            for line in _statistics(account):
                self.stdout.write(f"  {line}")
            self._problems(account.problems)
        for alias, rows in report.removed_accounts.items():
            self.stdout.write(
                f"{alias} (not configured any more): {rows.operations} open operations, "
                f"{rows.events} unfinished events, {rows.refreshes} due refreshes"
            )
        self._problems(report.problems)

    def _problems(self, problems: list[health.Problem]) -> None:
        for problem in problems:
            self.stdout.write(self.style.ERROR(f"  {problem.code}: {problem.message}. To do: {problem.action}."))


def _statistics(account: AccountReport) -> list[str]:
    statistics = account.statistics
    backlog, runs, drift = statistics.backlog, statistics.runs, statistics.drift
    last_event, last_webhook = _ago(statistics.last_event_age_seconds), _ago(statistics.last_webhook_age_seconds)
    complete = _ago(statistics.watermark_age_seconds)
    passes = ", ".join(
        f"{name} {_ago(run.age_seconds)} ({run.state or 'none'})"
        for name, run in (("events", runs.events), ("objects", runs.objects), ("balances", runs.balances))
    )
    waiting = ", ".join(
        f"{part.count} {what}"
        for part, what in (
            (backlog.pending, "to apply"),
            (backlog.undispatched, "to dispatch"),
            (backlog.held, "held"),
            (backlog.refreshes, "to read"),
            (backlog.operations, "to send or resolve"),
            (statistics.operations.unknown, "operations unknown"),
        )
    )
    lines = [
        f"last event {last_event}, last webhook {last_webhook}; complete up to {complete}",
        f"waiting: {waiting}; the oldest since {_ago(backlog.age_seconds)}",
        f"last passes: {passes}; {drift.drifted} objects drifted within a week, {drift.repaired} repaired",
    ]
    if statistics.clock_offset_seconds is not None:
        lines.append(f"the provider's clock minus ours: {statistics.clock_offset_seconds:+.1f} s")
    for endpoint in statistics.endpoints:
        left = endpoint.previous_secret_seconds_left
        old = f", the previous one is valid for {health.format_duration(left)} more" if left else ""
        lines.append(
            f"endpoint {endpoint.id} ({endpoint.status}) {endpoint.url}: secret "
            f"{'of ' + _ago(endpoint.secret_age_seconds) if endpoint.secret_is_known else 'not known'}{old}"
        )
    if statistics.erasures.count:
        lines.append(f"{statistics.erasures.count} erasures to be finished")
    return lines


def _ago(seconds: float | None) -> str:
    return "–" if seconds is None else f"{health.format_duration(seconds)} ago"  # noqa: RUF001  (a dash)
