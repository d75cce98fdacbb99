"""``payments_health``: whether all is well, and if not, what a person must do."""

from __future__ import annotations

import json
from typing import Any

from django.core.management import BaseCommand
from django.db import Error
from django.utils import timezone

from payments_integration import health
from payments_integration.health import AccountReport, Report
from payments_integration.management.accounts import add_account_argument, chosen_accounts


class Command(BaseCommand):
    help = (
        "Says whether all is well. Exit code 0: nothing needs a person; 1: something does, and what to do is said; "
        "2: wrong arguments. Reads the database only."
    )

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument("--json", action="store_true", help="print the figures and problems as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen_accounts(options["account"])
        try:
            report = health.examine(options["account"])
        except Error as error:
            # Only its kind: a database's message may show how it is reached.
            report = health.unreachable(timezone.now(), type(error).__name__)
        if options["json"]:
            self.stdout.write(json.dumps(report.as_json(), indent=2))
        else:
            self._show(report)
        if not report.ok:
            raise SystemExit(1)

    def _show(self, report: Report) -> None:
        for alias, account in report.accounts.items():
            self.stdout.write(f"{alias}: {'needs a person' if account.problems else 'all is well'}")
            for line in _figures(account):
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


def _figures(account: AccountReport) -> list[str]:
    figures = account.figures
    backlog, runs = figures.backlog, figures.runs
    last_event, last_webhook = _ago(figures.last_event_age_seconds), _ago(figures.last_webhook_age_seconds)
    passes = ", ".join(
        f"{name} {_ago(run.age_seconds)} ({run.state or 'none'})"
        for name, run in (("events", runs.events), ("objects", runs.objects), ("balances", runs.balances))
    )
    waiting = ", ".join(
        f"{part.count} {what}"
        for part, what in (
            (backlog.pending, "to apply"),
            (backlog.untold, "to tell"),
            (backlog.held, "held"),
            (backlog.refreshes, "to read"),
            (backlog.operations, "to send or resolve"),
            (figures.operations.unknown, "operations unknown"),
        )
    )
    lines = [
        f"last event {last_event}, by a delivery {last_webhook}; complete up to {_ago(figures.watermark_age_seconds)}",
        f"waiting: {waiting}; the oldest since {_ago(backlog.age_seconds)}",
        f"last passes: {passes}; {figures.drift.drifted} drifted within a week, {figures.drift.repaired} repaired",
    ]
    if figures.clock_offset_seconds is not None:
        lines.append(f"the provider's clock minus ours: {figures.clock_offset_seconds:+.1f} s")
    for endpoint in figures.endpoints:
        left = endpoint.previous_secret_seconds_left
        old = f", the one before it is valid for {health.spell(left)} more" if left else ""
        lines.append(
            f"endpoint {endpoint.id} ({endpoint.status}) {endpoint.url}: secret "
            f"{'of ' + _ago(endpoint.secret_age_seconds) if endpoint.secret_is_known else 'not known'}{old}"
        )
    if figures.erasures.count:
        lines.append(f"{figures.erasures.count} erasures to be finished")
    return lines


def _ago(seconds: float | None) -> str:
    return "–" if seconds is None else f"{health.spell(seconds)} ago"  # noqa: RUF001  (a dash)
