"""``payments_reconcile``: find and repair now what webhooks missed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.core.management import BaseCommand, CommandError

from payments_integration import inbox, reconciliation
from payments_integration.dates import day_of, on_site
from payments_integration.management.arguments import (
    add_account_argument,
    chosen_accounts,
    end_argument,
    provider_failure,
    require_database,
    require_past,
    time_argument,
)
from payments_integration.management.command import PaymentsCommand
from payments_integration.management.progress import Progress
from payments_integration.models import ReconciliationRun, RunState


class Command(PaymentsCommand):
    help = (
        "Finds missed events through GET /events; --full also compares every object. You can run it at any time. "
        "After an interruption the same command goes on where it stopped. --dispatch-history reads nothing: it calls "
        "your handlers for what was never dispatched, such as what was before the installation. Exit code 1: "
        "something could not be read; 3: the provider refused the API key; 4: it could not be reached."
    )
    # Cron would mail the warnings every time; manage.py check reports them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument(
            "--since", type=time_argument, help="read events, or dispatch what happened, from here (ISO 8601)"
        )
        parser.add_argument(
            "--until",
            type=end_argument,
            help="read events up to here (ISO 8601); a date includes that day, a time without a zone is the site's",
        )
        parser.add_argument("--full", action="store_true", help="also compare every object, field by field")
        parser.add_argument(
            "--dispatch-history",
            action="store_true",
            help="call handlers for what the mirror has since --since and what was never dispatched",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        since, until = options["since"], options["until"]
        require_past(since)
        if since and until and since >= until:
            raise CommandError("--since must be before --until.", returncode=2)
        if options["dispatch_history"] and not since:
            raise CommandError(
                "--dispatch-history needs --since TIME: handlers are called for everything from that time on.",
                returncode=2,
            )
        if options["dispatch_history"] and (until or options["full"]):
            raise CommandError("--dispatch-history goes with --since and --account only.", returncode=2)
        accounts = chosen_accounts(options["account"])
        require_database()
        if options["dispatch_history"]:
            for account in accounts:
                self._dispatch_history(account, since)
            return
        runs: list[ReconciliationRun] = []

        def reconcile(account: str) -> None:
            with RunProgress(self, resumes=not (since or until)) as progress:
                run = reconciliation.reconcile_events(
                    account, since=since, until=until, progress=progress.note, resync=not options["full"]
                )
            runs.append(self._report(run))
            if options["full"]:
                with RunProgress(self) as progress:
                    run = reconciliation.reconcile_objects(account, full=True, progress=progress.note)
                runs.append(self._report(run))

        reconciliation.each(accounts, reconcile)
        if any(run.state == RunState.FAILED for run in runs):
            raise provider_failure(runs) or CommandError(
                "Not everything could be read; see above. The next run continues there."
            )

    def _report(self, run: ReconciliationRun) -> ReconciliationRun:
        line = (
            f"{run.account} {run.kind}: {run.state}, {run.seen} seen, {run.recovered} recovered, "
            f"{run.drifted} drifted, {run.repaired} repaired, {run.pages} pages in {run.duration or 0:.1f} s"
        )
        if run.resumed:
            line += f"; resumed {run.resumed}"
        self.stdout.write(self.style.ERROR(f"{line}: {run.error}") if run.state == RunState.FAILED else line)
        return run

    def _dispatch_history(self, account: str, since: datetime) -> None:
        count = inbox.dispatch_history(account, since)
        self.stdout.write(
            f"{account}: {count} events and changes since {on_site(since):%Y-%m-%d %H:%M %Z} were never dispatched"
        )
        dispatched = inbox.dispatch(account)
        self.stdout.write(f"{account}: {dispatched} dispatched; a worker calls again the handlers that failed")


class RunProgress(Progress):
    """Progress of a pass. An interruption says how the next run goes on."""

    def __init__(self, command: BaseCommand, *, resumes: bool = True) -> None:
        """Set ``resumes`` to True if the next pass goes on where an interrupted one stopped."""
        super().__init__(command.stderr)
        self._resumes = resumes
        self._resumed = ""

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        super().__exit__(kind, *error)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            then = "goes on where it stopped" if self._resumes else "starts again"
            raise CommandError(f"Interrupted. The same command {then}.", returncode=130)

    def note(self, run: ReconciliationRun) -> None:
        if run.resumed != self._resumed:
            self._resumed = run.resumed
            self.say(f"{run.account} {run.kind}: resumes {run.resumed}")
        self.show(lambda seconds: f"{run.account} {run.kind}: {', '.join(_parts(run, seconds))}")


def _parts(run: ReconciliationRun, seconds: float) -> Iterator[str]:
    """Yield the count, the rate, how far back the newest-first list is, and the time left if it can be estimated."""
    rate = run.seen / seconds if seconds else 0.0
    yield f"{run.seen} objects"
    yield f"{rate:.0f}/s"
    if run.reads:
        yield run.reads
    if run.window_from:
        yield f"back to {day_of(run.window_from):%Y-%m-%d}"
    if rate and run.expected > run.seen:
        yield f"about {math.ceil((run.expected - run.seen) / rate / 60)} min left"
