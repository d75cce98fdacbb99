"""``payments_archive``: move old events into files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError

from payments_integration import conf, reconciliation
from payments_integration.management.arguments import add_account_argument, chosen_accounts


class Command(BaseCommand):
    help = (
        "Writes old events that are done into gzipped files of JSON lines, and deletes them from the database once "
        "their file is on disk. Events that are not dispatched, parked or quarantined stay. You can run it at any "
        "time."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("folder", type=Path, help="an existing folder; no file in it is overwritten")
        parser.add_argument(
            "--older-than",
            type=int,
            required=True,
            metavar="DAYS",
            help=f"events created longer ago than this, at least {conf.MIN_EVENT_DAYS}",
        )
        add_account_argument(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        chosen_accounts(options["account"])
        if options["older_than"] < conf.MIN_EVENT_DAYS:
            # The provider may still deliver such an event, and its row is how the app recognises it.
            raise CommandError(f"--older-than must be at least {conf.MIN_EVENT_DAYS} days.", returncode=2)
        if not options["folder"].is_dir():
            raise CommandError(f"{options['folder']} is not a folder.", returncode=2)
        total = 0
        try:
            for done in reconciliation.archive(
                options["folder"], days=options["older_than"], account=options["account"]
            ):
                total += done.deleted
                self.stdout.write(f"{done.path}: {done.written} events written, {done.deleted} deleted")
        except (reconciliation.ArchiveError, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{total} events archived")
