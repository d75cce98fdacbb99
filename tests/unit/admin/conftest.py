"""Users of the admin, and services that must not be called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from payments_integration import inbox, services
from tests.factories import rows


@pytest.fixture
def boss(db: None) -> Client:
    """A superuser's client."""
    return browser(User.objects.create_superuser("boss"))


@pytest.fixture
def staff(db: None) -> Callable[..., Client]:
    """A staff member's client, with the named permissions."""

    def make(*codenames: str) -> Client:
        user = User.objects.create_user(f"staff-{User.objects.count()}", is_staff=True)
        for codename in codenames:
            user.user_permissions.add(
                Permission.objects.get(
                    codename=codename, content_type__app_label__in=["payments_integration", "payments_backoffice"]
                )
            )
        return browser(user)

    return make


@pytest.fixture
def nothing_called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces every service and the replay; records their names when they are called."""
    called: list[str] = []
    for name in {*services.__all__} - {
        "PreconditionFailed",
        "fitting_objects",
        "is_requester",
        "operations",
        "possible_resolutions",
    }:
        monkeypatch.setattr(services, name, lambda *args, name=name, **kwargs: called.append(name))
    monkeypatch.setattr(inbox, "replay", lambda item, actor=None, seen_at=None: called.append("replay") is None)
    return called


def browser(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


def url(model: str, page: str, *ids: Any) -> str:
    return reverse(f"admin:{rows.app_of(model)}_{model}_{page}", args=[quote(str(pk)) for pk in ids])


def places_of(row: Any) -> tuple[str, ...]:
    """Where a row is shown."""
    model = row._meta.model_name
    if model == "objectdispatch":
        return ()
    if model not in rows.MAKERS:
        return (url("reconciliationrun", "technical"),)
    return (url(model, "changelist"), url(model, "change", row.pk))


def page(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return str(response.content.decode())
