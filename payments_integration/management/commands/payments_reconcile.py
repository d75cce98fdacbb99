"""``payments_reconcile``: find what was missed, now."""

from __future__ import annotations

from typing import Any

from django.core.management import BaseCommand, CommandError
from tqdm import tqdm

from payments_integration import reconciliation
from payments_integration.management.accounts import add_account_argument, chosen_accounts, time_argument
from payments_integration.models import ReconciliationRun, RunState


class Command(BaseCommand):
    help = "Finds missed events through GET /events; with --full also compares every object. Safe at any time."

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        parser.add_argument("--since", type=time_argument, help="read events from here (ISO 8601)")
        parser.add_argument("--until", type=time_argument, help="read events up to here (ISO 8601)")
        parser.add_argument("--full", action="store_true", help="then compare every object, field by field")

    def handle(self, *args: Any, **options: Any) -> None:
        since, until = options["since"], options["until"]
        if since and until and since >= until:
            raise CommandError("--since must be before --until.")
        failed = False
        for account in chosen_accounts(options["account"]):
            with Bar(self) as bar:
                run = reconciliation.reconcile_events(account, since=since, until=until, progress=bar.show)
            failed |= self._report(run)
            if options["full"]:
                with Bar(self) as bar:
                    run = reconciliation.reconcile_objects(account, full=True, progress=bar.show)
                failed |= self._report(run)
        if failed:
            raise CommandError("Not everything could be read; see above. The next run goes on from there.")

    def _report(self, run: ReconciliationRun) -> bool:
        line = (
            f"{run.account} {run.kind}: {run.state}, {run.seen} seen, {run.recovered} recovered, "
            f"{run.drifted} drifted, {run.repaired} repaired, {run.pages} pages in {run.duration or 0:.1f} s"
        )
        bad = run.state == RunState.FAILED
        self.stdout.write(self.style.ERROR(f"{line}: {run.error}") if bad else line)
        return bad


class Bar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, command: BaseCommand) -> None:
        self._bar = tqdm(unit=" objects", file=command.stderr, disable=None, leave=False)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def show(self, run: ReconciliationRun) -> None:
        self._bar.set_description(f"{run.account} {run.kind}", refresh=False)
        self._bar.update(run.seen - self._bar.n)
