"""After a test that commits, the database is as ``migrate`` left it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType

from payments_integration.models import AccountState
from tests import emptying

pytestmark = pytest.mark.django_db(transaction=True)


def test_rows_are_deleted_and_permissions_stay() -> None:
    look, permissions = emptying._look("default"), Permission.objects.count()
    user = User.objects.create_user("ana")
    user.user_permissions.set(Permission.objects.all()[:2])
    AccountState.objects.create(account="default")
    assert emptying._empty("default", look)
    assert not User.objects.exists()
    assert not AccountState.objects.exists()
    assert not User.user_permissions.through.objects.exists()
    assert Permission.objects.count() == permissions > 0


def test_no_content_type_of_another_database_stays_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(emptying._looks, "default", emptying._look("default"))  # it does not flush
    ContentType.objects.get_for_model(User).pk = -1
    emptying._teardown(SimpleNamespace(_databases_names=lambda include_mirrors: ["default"]))
    assert ContentType.objects.get_for_model(User).pk > 0


def test_a_permission_that_is_gone_is_left_to_flush() -> None:
    look = emptying._look("default")
    Permission.objects.all()[0].delete()
    assert not emptying._empty("default", look)
