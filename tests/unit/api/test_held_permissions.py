"""What somebody may, read at once or asked of the backends: the same answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from payments_integration import permissions
from payments_integration.api.permissions import held_by

pytestmark = pytest.mark.django_db

CODENAMES = ("view_payment", "view_personal_data", "add_payment", "refund_payment", "view_user", "unheard_of")


def permission(codename: str, app: str = permissions.APP) -> Permission:
    return Permission.objects.get(codename=codename, content_type__app_label=app)


def by_user(user: User) -> None:
    user.user_permissions.add(permission("view_payment"))


def by_group(user: User) -> None:
    group = Group.objects.create(name="clerks")
    group.permissions.add(permission("view_personal_data"), permission("add_payment"))
    user.groups.add(group)


def by_both(user: User) -> None:
    by_user(user)
    by_group(user)


def of_another_group(user: User) -> None:
    by_group(User.objects.create_user("another"))


def of_another_app(user: User) -> None:
    user.user_permissions.add(permission("view_user", "auth"))


def inactive(user: User) -> None:
    by_both(user)
    user.is_active = False
    user.save()


def superuser(user: User) -> None:
    user.is_superuser = True
    user.save()


@pytest.mark.parametrize(
    "make",
    [by_user, by_group, by_both, of_another_group, of_another_app, inactive, superuser],
    ids=lambda make: make.__name__,
)
def test_held_permissions_equal_djangos_answer(make: Callable[[User], None]) -> None:
    make(User.objects.create_user("clerk", is_staff=True))
    user = User.objects.get(username="clerk")
    may = held_by(user)
    assert {name for name in CODENAMES if may(name)} == {name for name in CODENAMES if permissions.may(user, name)}


def test_an_anonymous_user_has_no_permission() -> None:
    assert not any(held_by(user)(name) for user in (AnonymousUser(), None, object()) for name in CODENAMES)


def test_held_permissions_are_read_in_one_statement() -> None:
    by_both(User.objects.create_user("clerk"))
    user = User.objects.get(username="clerk")
    with CaptureQueriesContext(connection) as captured:
        may = held_by(user)
        assert may("view_payment")
        assert may("view_personal_data")
        assert not may("refund_payment")
    assert len(captured) == 1


class Cautious(ModelBackend):
    """Takes away what the rows give."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        return perm.endswith("view_personal_data")


def test_another_authentication_backend_is_asked(settings: Any) -> None:
    user = User.objects.create_user("clerk")
    by_both(user)
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.Cautious"]
    assert not held_by(user)("view_payment")
    assert held_by(user)("view_personal_data")


def test_a_user_model_with_its_own_has_perm_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    user = User.objects.create_user("clerk")
    by_both(user)
    monkeypatch.setattr(User, "has_perm", lambda *_: False)
    assert not held_by(user)("view_payment")
