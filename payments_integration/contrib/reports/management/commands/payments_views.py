"""``payments_views``: create read-only SQL views for reports."""

from __future__ import annotations

from typing import Any

from django.core.management import CommandError
from django.db import DatabaseError

from payments_integration.contrib.reports import sql_views
from payments_integration.management.arguments import require_tables
from payments_integration.management.command import PaymentsCommand


class Command(PaymentsCommand):
    help = (
        "Creates SQL views with stable names for reports, without personal data, in the database of the app's tables. "
        "migrate creates them too, and keeps them up to date. You can run it at any time."
    )

    def add_arguments(self, parser: Any) -> None:
        action = parser.add_mutually_exclusive_group()
        action.add_argument("--drop", action="store_true", help="drop the views")
        action.add_argument("--check", action="store_true", help="exit code 1 if a view is missing or out of date")
        action.add_argument("--dry-run", action="store_true", help="only print the SQL that creates the views")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = sql_views.using()
        if options["dry_run"]:
            for view in sql_views.VIEWS:
                self.stdout.write(f"{sql_views.create_statement(view, alias)};")
            return
        require_tables()
        try:
            if options["check"]:
                if found := sql_views.problems(alias):
                    raise CommandError("\n".join([*found, "Run manage.py payments_views."]))
                self.stdout.write(f"{len(sql_views.VIEWS)} views are up to date.")
                return
            if options["drop"]:
                sql_views.drop(alias)
            else:
                sql_views.create(alias)
        except DatabaseError as error:
            raise CommandError(str(error)) from error
        for view in sql_views.VIEWS:
            self.stdout.write(f"{'dropped' if options['drop'] else 'created'} {view.name}")
