"""``payments_groups``: create the three groups of admin users."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.core.management import BaseCommand, CommandError
from django.db import transaction

from payments_integration.permissions import APP

#: Models that support reads: a customer's money and its history.
_OF_CUSTOMERS = ("payment", "refund", "payout", "depositreference", "event", "statuschange", "operation", "note")


def groups() -> dict[str, frozenset[str]]:
    """Names of groups, and the codenames of their permissions. Models must be loaded."""
    models = apps.get_app_config(APP).get_models()
    everything = {f"view_{model._meta.model_name}" for model in models if "view" in model._meta.default_permissions}
    return {
        "Payments: support": frozenset(
            {
                *(f"view_{name}" for name in _OF_CUSTOMERS),
                "add_note",
                "refund_payment",
                "cancel_payment",
                "view_personal_data",
            }
        ),
        "Payments: finance": frozenset(
            {
                *everything,
                "add_note",
                "refund_payment",
                "cancel_payment",
                "create_payout",
                "cancel_payout",
                "approve_operation",
                "view_personal_data",
            }
        ),
        # They keep the system running; they neither move money nor see personal data.
        "Payments: operations": frozenset(
            {
                *everything,
                "replay_event",
                "change_operation",
                "close_operation",
                "manage_webhookendpoint",
                "rotate_webhookendpoint",
                "run_reconciliation",
            }
        ),
    }


class Command(BaseCommand):
    help = (
        "Creates the groups “Payments: support”, “Payments: finance” and “Payments: operations”, or adds the "
        "permissions that they lack. Permissions that you added stay. You can run it at any time."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument(
            "--exact", action="store_true", help="also remove this app's other permissions from the groups"
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
            did = ["created"] * is_new + _listed(codenames - known, "added")
            others = known - codenames
            if options["exact"]:
                group.permissions.remove(*has.exclude(codename__in=codenames))
                did += _listed(others, "removed")
            elif others:
                did += [f"left unchanged: {', '.join(sorted(others))}"]
            self.stdout.write(f"{name}: {'; '.join(did) or 'nothing to do'}")


def _listed(codenames: frozenset[str] | set[str], what: str) -> list[str]:
    return [f"{what}: {', '.join(sorted(codenames))}"] if codenames else []
