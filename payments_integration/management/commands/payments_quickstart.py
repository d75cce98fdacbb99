"""``payments_quickstart``: show or write what a project still needs for its first payment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

from django.apps import apps
from django.core.management import CommandError
from django.db import DEFAULT_DB_ALIAS
from django.db.migrations.loader import MigrationLoader

from payments_integration import conf, site_urls
from payments_integration.db.transactions import ledger_database
from payments_integration.management.command import PaymentsCommand
from payments_integration.management.quickstart import configuration, order_files, order_model, orders
from payments_integration.management.quickstart.gaps import Gap, fill, is_installed
from payments_integration.management.quickstart.order_model import OrderModel
from payments_integration.payable import Payable
from payments_integration.sandbox.command import port as port_number

#: Stand in a snippet for what only the project knows: how an order is marked, the value of a field. The first
#: fails: a handler that does nothing would be done with the payment, and the order stay unpaid.
BLANKS = ("raise NotImplementedError", "...")
#: The options that say what is written.
_CHOICES = ("order", "amount", "currency", "model", "port")


class Command(PaymentsCommand):
    help = (
        "Shows what the project still needs to take payments: settings, URLs, handlers, .env. With --write adds it. "
        "Changes nothing that is there. Exit code 1 if something is missing."
    )
    # The checks fail in a project that is not complete.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--write", action="store_true", help="add what is missing to the project's files")
        how.add_argument("--dry-run", action="store_true", help="only show it, as without --write")
        parser.add_argument(
            "--order",
            metavar="APP.MODEL",
            nargs="?",
            const="",
            help="also a view, its URL and a test, for this model of your shop; without a name it is found",
        )
        parser.add_argument("--amount", metavar="FIELD", help="with --order: the field with the price")
        parser.add_argument("--currency", metavar="FIELD|CODE", help="with --order: the field, or one for all orders")
        parser.add_argument("--model", metavar="APP.MODEL", help="the model that payments are for (found by its name)")
        parser.add_argument(
            "--port",
            type=port_number,
            help=f"the sandbox's port, for .env (from {configuration.SANDBOX_PORT} on, one that is free)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        order = None
        if options["order"] is not None:
            model = order_model.chosen(Path.cwd(), options["order"])
            order = order_model.read(model, amount=options["amount"], currency=options["currency"])
            if is_installed(Path(order.app.path)):
                raise CommandError(
                    f"{model._meta.label} is of an installed package. Put a proxy of it into an app of yours, and "
                    f"name that one: --order yourapp.{order_files.PROXY}\n\n{order_files.proxy(order)}"
                )
        gaps = list(missing(Path.cwd(), model=options["model"], port=options["port"], order=order))
        left = 0
        for gap in gaps:
            problem = fill(gap) if options["write"] else "missing"
            left += bool(problem)
            style = self.style.WARNING if problem else self.style.SUCCESS
            self.stdout.write(style(f"{gap.what}: {problem or 'added'}"))
            snippet = f":\n\n{indent(gap.snippet.rstrip(), '    ')}\n" if problem else ""
            self.stdout.write(f"  {gap.place}{snippet}")
        if order is not None and not order.has_view:
            self.stdout.write("Without sessions, your project gets no view. Open the REST API: docs/rest-api.md.")
        if left:
            how = "Add what is missing by hand."
            if not options["write"]:
                # With the same options: without them it would write other files.
                same = "".join(f" --{name} {options[name]}".rstrip() for name in _CHOICES if options[name] is not None)
                how = f"Add what is missing, or run: python manage.py payments_quickstart{same} --write"
            self.stderr.write(self.style.ERROR(f"Not complete yet. {how}"))
            raise SystemExit(1)
        self.stdout.write(self.style.SUCCESS("All is there now." if gaps else "All is there; nothing was changed."))
        for gap in gaps:
            for blank in BLANKS:
                if blank in gap.snippet:
                    path = gap.place.partition(",")[0]
                    self.stdout.write(self.style.WARNING(f'Write your own lines in place of "{blank}" in {path}.'))
        # Without the path, the route was written just now. No proxy removes FORCE_SCRIPT_NAME before runserver.
        path = site_urls.without_script_prefix(site_urls.webhook_path(conf.DEFAULT_ACCOUNT)) or "/payments/webhook/"
        first = "".join(f"python manage.py makemigrations {label}, " for label in _without_migration(order))
        alias = ledger_database()
        routed = f", python manage.py migrate --database {alias}" if alias != DEFAULT_DB_ALIAS else ""
        self.stdout.write(
            f"Next: {first}python manage.py migrate{routed}, then in two terminals\n"
            "  python manage.py runserver\n"
            f"  python manage.py payments_sandbox --webhook-url http://127.0.0.1:8000{path}"
        )
        if order is not None:
            self.stdout.write(f"Test the way of an order: python manage.py test {order.app.name}")


def _without_migration(order: OrderModel | None) -> list[str]:
    """Return the apps with a Payable and an empty folder of migrations: ``migrate`` alone would make no table.

    ``order`` counts as one: it became a Payable just now.
    """
    loader = MigrationLoader(None, ignore_no_migrations=True)
    labels = {model._meta.app_label for model in apps.get_models() if issubclass(model, Payable)}
    labels |= {order.app.label} if order is not None else set()
    return sorted(label for label in labels & loader.migrated_apps if not loader.graph.leaf_nodes(label))


def missing(
    root: Path, *, model: str | None = None, port: int | None = None, order: OrderModel | None = None
) -> Iterator[Gap]:
    """Yield what the project in this folder lacks, in the order to write it."""
    yield from configuration.gaps(root, port)
    if order is not None:
        yield from orders.gaps(root, order)
    yield from orders.gaps_of_handlers(root, model, order)
