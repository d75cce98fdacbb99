"""``payments_reconcile``: find and repair what webhooks missed, now."""

from __future__ import annotations

import time
from typing import Any

from django.core.management import BaseCommand, CommandError

from payments_integration import reconciliation
from payments_integration.management.arguments import (
    add_account_argument,
    chosen_accounts,
    provider_failure,
    require_tables,
    time_argument,
)
from payments_integration.models import ReconciliationRun, RunState


class Command(BaseCommand):
    help = (
        "Finds missed events through GET /events; --full also compares every object. You can run it at any time. Exit "
        "code 1: something could not be read; 3: the provider refused the API key; 4: it could not be reached."
    )
    # Cron would mail the warnings every time; manage.py check reports them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument("--since", type=time_argument, help="read events from here (ISO 8601)")
        parser.add_argument("--until", type=time_argument, help="read events up to here (ISO 8601)")
        parser.add_argument("--full", action="store_true", help="also compare every object, field by field")

    def handle(self, *args: Any, **options: Any) -> None:
        since, until = options["since"], options["until"]
        if since and until and since >= until:
            raise CommandError("--since must be before --until.")
        accounts = chosen_accounts(options["account"])
        require_tables()
        runs: list[ReconciliationRun] = []
        for account in accounts:
            with Progress(self) as progress:
                run = reconciliation.reconcile_events(account, since=since, until=until, progress=progress.show)
            runs.append(self._report(run))
            if options["full"]:
                with Progress(self) as progress:
                    run = reconciliation.reconcile_objects(account, full=True, progress=progress.show)
                runs.append(self._report(run))
        if any(run.state == RunState.FAILED for run in runs):
            raise provider_failure(runs) or CommandError(
                "Not everything could be read; see above. The next run continues there."
            )

    def _report(self, run: ReconciliationRun) -> ReconciliationRun:
        line = (
            f"{run.account} {run.kind}: {run.state}, {run.seen} seen, {run.recovered} recovered, "
            f"{run.drifted} drifted, {run.repaired} repaired, {run.pages} pages in {run.duration or 0:.1f} s"
        )
        self.stdout.write(self.style.ERROR(f"{line}: {run.error}") if run.state == RunState.FAILED else line)
        return run


class Progress:
    """One line on a terminal that is rewritten once a second; no output elsewhere."""

    def __init__(self, command: BaseCommand) -> None:
        self._stream = command.stderr
        self._shown_at = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown_at:
            self._write("")

    def show(self, run: ReconciliationRun) -> None:
        if self._stream.isatty() and time.monotonic() >= self._shown_at + 1:
            self._shown_at = time.monotonic()
            self._write(f"{run.account} {run.kind}: {run.seen} objects")

    def _write(self, text: str) -> None:
        # Not in the style of errors, which is that of stderr.
        self._stream.write(f"\r\x1b[K{text}", style_func=str, ending="")
        self._stream.flush()
