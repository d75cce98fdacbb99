"""``payments_groups``: each group has its permissions and no others."""

from __future__ import annotations

import io

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command

from payments_integration import permissions, services
from payments_integration.management.commands.payments_groups import groups
from payments_integration.outbox.approvals import APPROVE
from payments_integration.outbox.resolution import CLOSE, RESOLVE

pytestmark = pytest.mark.django_db

SUPPORT, FINANCE, OPERATIONS = "Payments: support", "Payments: finance", "Payments: operations"
MONEY = {"refund_payment", "cancel_payment", "create_payout", "cancel_payout", APPROVE}


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("payments_groups", *words, stdout=out)
    return out.getvalue()


def of(name: str) -> set[str]:
    found = Permission.objects.filter(group__name=name)
    assert {permission.content_type.app_label for permission in found} <= {"payments_integration", "auth"}
    return {permission.codename for permission in found}


def test_groups_are_created_with_their_permissions() -> None:
    output = run()
    assert set(Group.objects.values_list("name", flat=True)) == {SUPPORT, FINANCE, OPERATIONS}
    for name, codenames in groups().items():
        assert of(name) == codenames
        assert f"{name}: created; added: " in output
    assert of(SUPPORT) & MONEY == {"refund_payment", "cancel_payment"}
    assert of(FINANCE) >= MONEY
    assert not of(OPERATIONS) & MONEY
    assert "view_personal_data" in of(SUPPORT) & of(FINANCE)
    assert "view_personal_data" not in of(OPERATIONS)
    assert "view_balance" in of(FINANCE) & of(OPERATIONS)
    held = {codename for name in groups() for codename in of(name)}
    assert {codename for codename in held if codename.startswith(("add_", "delete_"))} == {"add_note"}
    assert "add_note" not in of(OPERATIONS)


def test_every_permission_belongs_to_a_group() -> None:
    mine = Permission.objects.filter(content_type__app_label="payments_integration")
    all_of_them = set().union(*groups().values())
    own = {permission.codename for permission in mine if not permission.codename.startswith(("add_", "delete_"))}
    required = {call.permission for call in services.operations.CALLS.values()} - {""}
    assert all_of_them >= {*required, APPROVE, RESOLVE, CLOSE, "replay_event", "run_reconciliation"}
    assert own - all_of_them == {name for name in own if name.startswith("change_") and name != RESOLVE}


def test_a_member_has_the_permissions_of_the_group() -> None:
    run()
    user = User.objects.create(username="ana", is_staff=True)
    user.groups.add(Group.objects.get(name=SUPPORT))
    assert permissions.may(user, "refund_payment")
    assert not permissions.may(user, "create_payout")


def test_a_repeated_run_adds_missing_permissions_and_keeps_others() -> None:
    run()
    assert run() == "".join(f"{name}: nothing to do\n" for name in groups())
    group = Group.objects.get(name=SUPPORT)
    group.permissions.remove(Permission.objects.get(codename="refund_payment"))
    group.permissions.add(
        Permission.objects.get(codename="create_payout"), Permission.objects.get(codename="view_user")
    )
    output = run()
    assert f"{SUPPORT}: added: refund_payment; left unchanged: create_payout\n" in output
    assert of(SUPPORT) == groups()[SUPPORT] | {"create_payout", "view_user"}


def test_exact_removes_other_permissions_of_this_app_only() -> None:
    run()
    group = Group.objects.get(name=SUPPORT)
    group.permissions.add(*Permission.objects.filter(codename__in=["create_payout", "view_user"]))
    assert f"{SUPPORT}: removed: create_payout\n" in run("--exact")
    assert of(SUPPORT) == groups()[SUPPORT] | {"view_user"}


def test_before_migrate_no_group_is_created() -> None:
    Permission.objects.filter(codename="approve_operation").delete()
    with pytest.raises(CommandError, match="no permission approve_operation: run "):
        run()
    assert not Group.objects.exists()
