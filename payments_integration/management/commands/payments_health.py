"""``payments_health``: show what needs attention and what to do about it."""

from __future__ import annotations

import json
from typing import Any

from django.db import Error
from django.utils import timezone

from payments_integration import conf, health
from payments_integration.health import AccountReport, Report
from payments_integration.management.arguments import add_account_argument, chosen_accounts
from payments_integration.management.command import PaymentsCommand

#: A page of the app's docs.
RUNBOOK = "The runbook (docs/runbook.md)"


class Command(PaymentsCommand):
    help = (
        "Shows whether anything needs attention, and what to do about it. Exit code 0: nothing needs attention; 1: "
        "something does; 2: wrong arguments. Reads the database only."
    )
    # Cron would mail the warnings every time; manage.py check reports them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print the statistics and problems as JSON")
        form.add_argument("--explain", action="store_true", help="list the first rows that each problem is about")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen_accounts(options["account"])
        try:
            report = health.examine(options["account"])
        except Error as error:
            report = health.unreachable(timezone.now(), error)
        if options["json"]:
            self.stdout.write(json.dumps(report.as_json(), indent=2))
        else:
            self._show(report, explain=options["explain"])
        if not report.ok:
            raise SystemExit(1)

    def _show(self, report: Report, *, explain: bool) -> None:
        for alias, account in report.accounts.items():
            self.stdout.write(f"{alias}: {'needs attention' if account.problems else 'all is well'}")
            for line in _statistics(alias, account):
                self.stdout.write(f"  {line}")
            for problem in account.problems:
                self._problem(problem, health.explain(alias, problem.code) if explain else [])
        for alias, rows in report.removed_accounts.items():
            self.stdout.write(
                f"{alias} (not configured any more): {rows.operations} open operations, "
                f"{rows.events} unfinished events, {rows.refreshes} due refreshes, {rows.erasures} open erasures, "
                f"{rows.open_objects} open payments, payouts and refunds, {rows.endpoints} webhook endpoints"
            )
        for problem in report.problems:
            self._problem(problem, health.explain_removed(report.removed_accounts) if explain else [])
        if not report.ok:
            self.stdout.write(f"--explain lists the rows. {RUNBOOK} has an entry for each code.")

    def _problem(self, problem: health.Problem, rows: list[str]) -> None:
        self.stdout.write(self.style.ERROR(f"  {problem.code}: {problem.message}. To do: {problem.action}."))
        for row in rows:
            self.stdout.write(f"    {row}")


def _statistics(alias: str, account: AccountReport) -> list[str]:
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
    not_stored = "not stored, WEBHOOK_SECRETS are tried" if conf.account(alias).webhook_secrets else "not known"
    for endpoint in statistics.endpoints:
        left = endpoint.previous_secret_seconds_left
        old = f", the previous one is valid for {health.format_duration(left)} more" if left else ""
        lines.append(
            f"endpoint {endpoint.id} ({endpoint.status}) {endpoint.url}: secret "
            f"{'of ' + _ago(endpoint.secret_age_seconds) if endpoint.secret_is_known else not_stored}{old}"
        )
    if statistics.erasures.count:
        lines.append(f"{statistics.erasures.count} erasures to be finished")
    return lines


def _ago(seconds: float | None) -> str:
    return "–" if seconds is None else f"{health.format_duration(seconds)} ago"  # noqa: RUF001  (a dash)
