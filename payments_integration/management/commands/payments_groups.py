"""``payments_groups``: the three groups of people who use the admin."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, Permission
from django.core.management import BaseCommand, CommandError
from django.db import transaction

from payments_integration.management.groups import groups
from payments_integration.permissions import APP


class Command(BaseCommand):
    help = (
        "Creates the groups “Payments: support”, “Payments: finance” and “Payments: operations”, or adds what they "
        "lack. Safe at any time: what you gave them besides stays."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument(
            "--exact", action="store_true", help="also take away this app's permissions that are not theirs"
        )

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        for name, codenames in groups().items():
            group, is_new = Group.objects.get_or_create(name=name)
            wanted = Permission.objects.filter(content_type__app_label=APP, codename__in=codenames)
            if missing := codenames - set(wanted.values_list("codename", flat=True)):
                raise CommandError(
                    f"There is no permission {', '.join(sorted(missing))}: run manage.py migrate first."
                )
            has = group.permissions.filter(content_type__app_label=APP)
            known = set(has.values_list("codename", flat=True))
            group.permissions.add(*wanted)
            did = ["created"] * is_new + _said(codenames - known, "added")
            others = known - codenames
            if options["exact"]:
                group.permissions.remove(*has.exclude(codename__in=codenames))
                did += _said(others, "taken away")
            elif others:
                did += [f"left as they are: {', '.join(sorted(others))}"]
            self.stdout.write(f"{name}: {'; '.join(did) or 'nothing to do'}")


def _said(codenames: frozenset[str] | set[str], what: str) -> list[str]:
    return [f"{what}: {', '.join(sorted(codenames))}"] if codenames else []
