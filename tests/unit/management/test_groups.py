"""``payments_groups``: each group has its permissions and no others."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command

from payments_integration import permissions, services
from payments_integration.management.commands import payments_groups
from payments_integration.outbox.approvals import APPROVE
from payments_integration.outbox.resolution import CLOSE, RESOLVE

pytestmark = pytest.mark.django_db

VIEWER, SUPPORT, FINANCE, APPROVER, OPERATIONS = (
    f"Payments: {name}" for name in ("viewer", "support", "finance", "approver", "operations")
)
MONEY = {"refund_payment", "cancel_payment", "create_payout", "cancel_payout", APPROVE}


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("payments_groups", *words, stdout=out)
    return out.getvalue()


def groups() -> dict[str, set[str]]:
    """The codenames of each group."""
    return {name: {each.partition(".")[2] for each in names} for name, names in payments_groups.groups().items()}


def of(name: str) -> set[str]:
    found = Permission.objects.filter(group__name=name)
    apps = {permission.content_type.app_label for permission in found}
    assert apps <= {"payments_integration", "payments_finance", "payments_backoffice", "auth"}
    return {permission.codename for permission in found}


def test_groups_are_created_with_their_permissions() -> None:
    output = run()
    assert set(Group.objects.values_list("name", flat=True)) == {VIEWER, SUPPORT, FINANCE, APPROVER, OPERATIONS}
    for name, codenames in groups().items():
        assert of(name) == codenames
        assert f"{name}: created; added: " in output
    assert of(SUPPORT) & MONEY == {"refund_payment", "cancel_payment"}
    assert of(FINANCE) & MONEY == MONEY - {APPROVE}
    assert of(APPROVER) & MONEY == {APPROVE}, "who approves starts nothing"
    assert not (of(VIEWER) | of(OPERATIONS)) & MONEY
    assert all(codename.startswith("view_") for codename in of(VIEWER))
    assert "view_personal_data" in of(SUPPORT) & of(FINANCE) & of(APPROVER)
    assert "view_personal_data" not in of(VIEWER) | of(OPERATIONS)
    assert "view_balance" in of(VIEWER) & of(FINANCE) & of(APPROVER) & of(OPERATIONS)
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


def test_the_documented_table_says_who_may_what() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "admin.md").read_text().partition("### Groups")[2]
    head, *lines = re.findall(r"^\|(.*)\|$", page.partition("## Personal data")[0], re.MULTILINE)
    names = [f"Payments: {cell.strip()}" for cell in head.split("|")[1:]]
    assert names == list(groups())
    shown = {}
    for line in lines[3:]:
        what, *cells = line.split("|")
        for codename in re.findall(r"`(\w+)`", what):
            shown[codename] = {name for name, cell in zip(names, cells, strict=True) if cell.strip() == "yes"}
    acts = {codename for found in groups().values() for codename in found if not codename.startswith("view_")}
    for codename in (*acts, "view_personal_data"):
        assert shown.pop(codename) == {name for name, found in groups().items() if codename in found}, codename
    assert not shown
