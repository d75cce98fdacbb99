"""``payments_groups``: create the groups of admin users."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.core.management import CommandError
from django.db import transaction

from payments_integration.management.command import PaymentsCommand
from payments_integration.permissions import APP

#: Models that support reads: a customer's money and its history.
_OF_CUSTOMERS = ("payment", "refund", "payout", "depositreference", "event", "statuschange", "operation")
VIEWER, SUPPORT, FINANCE, APPROVER, OPERATIONS = (
    f"Payments: {name}" for name in ("viewer", "support", "finance", "approver", "operations")
)


def groups() -> dict[str, frozenset[str]]:
    """Return the groups by name, with their permissions as ``app_label.codename``. Models must be loaded.

    An optional app adds its own permissions by the attribute ``payments_groups`` of its AppConfig (group name:
    codenames).
    """
    models = apps.get_app_config(APP).get_models()
    everything = {f"view_{model._meta.model_name}" for model in models if "view" in model._meta.default_permissions}
    refunds = {"refund_payment", "cancel_payment", "view_personal_data"}
    ours = {
        # They see all money and no personal data.
        VIEWER: everything,
        SUPPORT: {*(f"view_{name}" for name in _OF_CUSTOMERS), *refunds},
        FINANCE: {*everything, *refunds, "create_payout", "cancel_payout"},
        # The second person sees what they approve and whose bank account gets the money. A person who also starts
        # payouts is in both groups, but cannot approve their own.
        APPROVER: {*everything, "approve_operation", "view_personal_data"},
        # They keep the system running. They neither move money nor see personal data.
        OPERATIONS: {
            *everything, "replay_event", "change_operation", "close_operation", "manage_webhookendpoint",
            "rotate_webhookendpoint", "run_reconciliation",
        },
    }  # fmt: skip
    found = {name: {f"{APP}.{codename}" for codename in codenames} for name, codenames in ours.items()}
    for config in apps.get_app_configs():
        for name, codenames in getattr(config, "payments_groups", {}).items():
            found[name] |= {f"{config.label}.{codename}" for codename in codenames}
    return {name: frozenset(permissions) for name, permissions in found.items()}


class Command(PaymentsCommand):
    help = (
        "Creates the groups “Payments: viewer”, “support”, “finance”, “approver” and “operations”, or adds the "
        "permissions that they lack. Permissions that you added stay. You can run it at any time."
    )

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument(
            "--exact", action="store_true", help="also remove this app's other permissions from the groups"
        )

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        wanted_by_group = groups()
        labels = {name.partition(".")[0] for names in wanted_by_group.values() for name in names}
        known = {
            f"{permission.content_type.app_label}.{permission.codename}": permission
            for permission in Permission.objects.filter(content_type__app_label__in=labels).select_related(
                "content_type"
            )
        }
        for group_name, names in wanted_by_group.items():
            group, is_new = Group.objects.get_or_create(name=group_name)
            if missing := names - set(known):
                listed = ", ".join(map(_codename, sorted(missing)))
                raise CommandError(f"There is no permission {listed}: run manage.py migrate first.")
            held = set(group.permissions.values_list("pk", flat=True))
            has = {name for name, permission in known.items() if permission.pk in held}
            group.permissions.add(*(known[name] for name in names))
            did = ["created"] * is_new + _listed(names - has, "added")
            others = has - names
            if options["exact"]:
                group.permissions.remove(*(known[name] for name in others))
                did += _listed(others, "removed")
            elif others:
                did += [f"left unchanged: {', '.join(map(_codename, sorted(others)))}"]
            self.stdout.write(f"{group_name}: {'; '.join(did) or 'nothing to do'}")


def _codename(name: str) -> str:
    return name.partition(".")[2]


def _listed(names: frozenset[str] | set[str], what: str) -> list[str]:
    return [f"{what}: {', '.join(map(_codename, sorted(names)))}"] if names else []
