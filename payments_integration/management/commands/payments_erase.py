"""``payments_erase``: erase a payer's personal data."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from typing import Any

from django.core.management import CommandError

from payments_integration import erasure
from payments_integration.erasure import Found, Selection, UnknownObject
from payments_integration.management.arguments import add_account_argument, chosen_accounts, confirm
from payments_integration.management.command import PaymentsCommand
from payments_integration.management.progress import Progress

#: Singular and plural.
_NAMES = {
    "payment": ("payment", "payments"),
    "payout": ("payout", "payouts"),
    "refund": ("refund", "refunds"),
    "deposit_reference": ("deposit reference", "deposit references"),
    "event": ("event body", "event bodies"),
    "operation": ("operation", "operations"),
    "open_operation": ("open operation", "open operations"),
    "quarantined": ("quarantined body", "quarantined bodies"),
}
_ELSEWHERE = (
    "backups, dumps and snapshots of the database: erase again after you restore one",
    "replicas: they follow by themselves, one that lags behind later",
    "logs, error reports and traces of the site, the workers and the servers",
    "the provider's records: ask the provider",
    "your own tables, files, exports, mails and other systems that have received the data",
)


class Command(PaymentsCommand):
    help = (
        "Erases a payer's personal data from the mirror, the inbox and the operations, and keeps it out. "
        "Amounts, statuses and ids stay. You cannot undo this. The command prints how many rows of each kind it "
        "erased, never their values, and where else you have to look."
    )

    def add_arguments(self, parser: Any) -> None:
        add_account_argument(parser)
        for option, meaning in (
            ("email", "an e-mail address of the payer"),
            ("phone", "a phone number of the payer, with its country code"),
            ("document", "a document number of the payer or of an account holder"),
            ("reference", "a merchant reference, exactly as it was given"),
            ("id", "the id of a payment, payout, refund, deposit reference, operation or quarantined event"),
        ):
            parser.add_argument(f"--{option}", action="append", default=[], metavar="…", help=f"{meaning}; repeatable")
        parser.add_argument(
            "--stdin",
            action="store_true",
            help="read more of them from standard input, one per line, such as “email ana@example.com”, so that they "
            "appear neither in the shell's history nor in the list of processes",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count what would be erased")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        parser.add_argument(
            "--actor", default="", help="who asked for the erasure, for the record (default: your login name)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        chosen_accounts(options["account"])
        try:
            with Progress(self.stderr) as progress:
                rows = 0

                def looked(more: int) -> None:
                    nonlocal rows
                    rows += more
                    progress.count("rows searched", rows)

                found = erasure.select(self._selection(options), options["account"], looked=looked)
        except UnknownObject as error:
            raise CommandError(f"{error.args[0]}.", returncode=2) from None
        is_any = found.keys or found.quarantined or any(found.elsewhere.values())
        self.stdout.write(f"Found: {_listed(found.counts())}." if is_any else "Nothing was found.")
        if options["dry_run"]:
            self.stdout.write("Nothing was erased.")
        elif is_any:
            self._erase(found, options)
        self.stdout.write("This command does not reach:")
        for place in _ELSEWHERE:
            self.stdout.write(f"- {place}")

    def _erase(self, found: Found, options: Mapping[str, Any]) -> None:
        if not options["yes"]:
            confirm("You cannot undo this.", "erase", flag="--yes", done="erased")
        erased = erasure.erase(found, actor=options["actor"] or _login())
        self.stdout.write(self.style.SUCCESS(f"Erased: {_listed(erased.done)}."))
        if erased.left:
            self.stdout.write(
                f"Left until it is closed or applied: {_listed(erased.left)}. It is erased automatically afterwards; "
                "payments_health shows it while it waits."
            )

    def _selection(self, options: Mapping[str, Any]) -> Selection:
        chosen: dict[str, list[str]] = {
            name: list(options[name]) for name in ("email", "phone", "document", "reference", "id")
        }
        for line in sys.stdin if options["stdin"] else ():
            name, _, value = line.strip().partition(" ")
            if name not in chosen or not value:
                raise CommandError(f"Each line must be one of {', '.join(chosen)}, and a value.", returncode=2)
            chosen[name].append(value.strip())
        try:
            selection = Selection.of(**{f"{name}s": values for name, values in chosen.items()})
        except ValueError as error:
            raise CommandError(f"This selects no payer: {error}.", returncode=2) from None
        if selection.is_empty:
            raise CommandError("Choose a payer: --email, --phone, --document, --reference or --id.", returncode=2)
        return selection


def _listed(counts: Mapping[str, int]) -> str:
    words = []
    names = {**_NAMES, **{eraser.name[0]: eraser.name for eraser in erasure.erasers()}}
    for kind, count in sorted(counts.items()):
        one, several = names.get(kind, (f"{kind} (not mirrored)",) * 2)
        if count:
            words.append(f"{count} {one if count == 1 else several}")
    return ", ".join(words) or "nothing"


def _login() -> str:
    """Return the user who runs the command, if the system knows them."""
    try:
        return f"payments_erase by {getpass.getuser()}"
    except (KeyError, OSError):
        return "payments_erase"
