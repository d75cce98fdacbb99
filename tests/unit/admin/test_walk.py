"""A walk over every address and action of the admin, as everybody: exactly what is allowed opens.

The addresses come from the resolver; ``doors`` says who may. A new page without an entry there fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from payments_integration import inbox
from payments_integration.client.transport import Transport
from payments_integration.exceptions import NoAnswer
from tests.unit.admin import rows
from tests.unit.admin.backends import RememberingBackend
from tests.unit.admin.conftest import browser, url
from tests.unit.admin.doors import ACTIONS, APP, DOORS, Door, address, names, of_a_row

APP_MODELS = list(apps.get_app_config(APP).get_models())
#: Every permission of the app there is: Django's four for each model, and our own.
PERMISSIONS = sorted(
    {f"{verb}_{model._meta.model_name}" for model in APP_MODELS for verb in model._meta.default_permissions}
    | {codename for model in APP_MODELS for codename, _ in model._meta.permissions}
)
VIEW = [f"view_{model}" for model in rows.MAKERS]
#: Those that open more than what there is to see.
OWN_PERMISSIONS = sorted(
    {name for door in DOORS.values() for name in door.opens if not door.name.endswith("_change")}
    - {name for model in rows.MAKERS for name in (f"view_{model}", f"change_{model}")}
    | {"change_operation"}
)
LOGIN = 302
#: By those who may, a POST without any of what the page asks for is answered by the page, or leads back.
DONE = (200, 302)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requests that wanted to leave for the provider. None does: there is no answer."""
    noted: list[str] = []

    def exchange(self: Transport, method: str, path: str, **kwargs: Any) -> Any:
        noted.append(f"{method} {path}")
        raise NoAnswer(f"{method} {path}: nothing leaves here")

    monkeypatch.setattr(Transport, "exchange", exchange)
    return noted


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    noted: list[str] = []
    real = inbox.replay
    monkeypatch.setattr(inbox, "replay", lambda item, **kwargs: (noted.append(str(item.pk)), real(item, **kwargs)))
    return noted


@pytest.fixture(autouse=True)
def _fast(settings: Any, woken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk is thousands of requests: none reads its session and user anew, or lays out a traceback."""
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.AUTHENTICATION_BACKENDS = ["tests.unit.admin.backends.RememberingBackend"]
    RememberingBackend.users.clear()
    monkeypatch.setattr(logging.getLogger("django.request"), "disabled", True)


@dataclass(frozen=True)
class Place:
    """A door with a row behind it."""

    door: Door
    row: Any
    where: str

    @property
    def form(self) -> dict[str, Any]:
        return self.door.filled(self.row)

    @property
    def page(self) -> str:
        """Where a person would look for it: the row's page, or the list."""
        return (
            url(self.door.model, "change", self.row.pk) if of_a_row(self.door) else url(self.door.model, "changelist")
        )


Places = list[Place]


@pytest.fixture
def places(db: None) -> Places:
    """Every door there is."""
    plain = {model: make() for model, make in rows.MAKERS.items()}
    found = [(door, door.row() if door.row else plain[door.model]) for door in DOORS.values()]
    return [Place(door, row, address(door, row)) for door, row in found]


def member(*codenames: str, **fields: Any) -> Client:
    """Staff with these permissions of the app."""
    user = User.objects.create_user(f"user-{User.objects.count()}", **{"is_staff": True, **fields})
    found = Permission.objects.filter(content_type__app_label=APP, codename__in=codenames)
    assert found.count() == len(set(codenames))
    user.user_permissions.set(found)
    return browser(user)


def everything() -> dict[str, list[dict[str, Any]]]:
    """All that is written in the app's tables and in the history of the admin."""
    models = [*APP_MODELS, LogEntry]
    return {model._meta.label: list(model._default_manager.order_by("pk").values()) for model in models}


def expected(door: Door, method: str, *, opens: bool) -> tuple[int, ...]:
    if not opens:
        return (door.refused,)
    if method == "get":
        return (door.get,)
    return DONE if door.post in DONE else (door.post,)


def visit(client: Client, places: Places, opens: Callable[[Door], bool]) -> list[str]:
    """Go to every door by GET and by POST; a line for each that answered otherwise than it should."""
    wrong = []
    for place in places:
        door, where = place.door, place.where
        for method in ("get", "post"):
            response = getattr(client, method)(where, place.form)
            if response.status_code not in expected(door, method, opens=opens(door)):
                wrong.append(f"{method} {door.name}: {response.status_code}")
    return wrong


def test_every_address_is_in_the_table() -> None:
    assert names() == set(DOORS)


def test_every_action_is_in_the_table() -> None:
    registered = [model for model in APP_MODELS if admin.site.is_registered(model)]
    assert {model._meta.model_name for model in registered} == set(rows.MAKERS)
    found = {
        # Since Django 6.1 an action is no tuple.
        (model._meta.model_name, getattr(action, "name", None) or action[1])
        for model in registered
        for action in admin.site.get_model_admin(model)._get_base_actions()
    }
    # Of Django's own: nobody has the permission to delete.
    assert found - {(model, "delete_selected") for model in rows.MAKERS} == set(ACTIONS)


def test_the_table_names_permissions_that_exist() -> None:
    named = {codename for door in DOORS.values() for codename in door.opens} | set(ACTIONS.values())
    assert named <= set(PERMISSIONS)


@pytest.mark.case(88)
@pytest.mark.parametrize("who", ["anonymous", "customer", "left"])
def test_who_is_no_staff_is_asked_to_log_in(sent: list[str], places: Places, who: str) -> None:
    clients = {
        "anonymous": Client,
        "customer": lambda: member(*PERMISSIONS, is_staff=False),
        "left": lambda: member(*PERMISSIONS, is_active=False),
    }
    client = clients[who]()
    before = everything()
    for place in places:
        door, where = place.door, place.where
        for method in ("get", "post", "put", "delete", "head", "options", "patch"):
            response = getattr(client, method)(where, place.form)
            assert response.status_code == LOGIN, (method, door.name)
            assert response.headers["Location"].startswith(reverse("admin:login")), (method, door.name)
    assert sent == []
    assert everything() == before


@pytest.mark.case(88)
def test_staff_without_permissions_finds_every_door_closed(sent: list[str], places: Places) -> None:
    client = member()
    before = everything()
    for place in places:
        door, where = place.door, place.where
        for method in ("get", "post", "put", "delete", "head", "options", "patch"):
            response = getattr(client, method)(where, place.form)
            # Some pages look at the method first.
            refused = (door.refused,) if method in ("get", "post") else (door.refused, 405)
            assert response.status_code in refused, (method, door.name)
    assert sent == []
    assert everything() == before


@pytest.mark.case(88)
@pytest.mark.parametrize("permission", PERMISSIONS)
def test_each_permission_opens_its_doors_and_no_other(sent: list[str], places: Places, permission: str) -> None:
    client = member(permission)
    closed = [place for place in places if permission not in place.door.opens]
    before = everything()
    assert visit(client, closed, lambda door: False) == []
    assert sent == []
    assert everything() == before
    mine = [place for place in places if permission in place.door.opens]
    assert visit(client, mine, lambda door: True) == []


@pytest.mark.case(88)
@pytest.mark.parametrize("permission", ["", *OWN_PERMISSIONS])
def test_who_sees_every_page_is_offered_what_the_permission_allows(
    sent: list[str], places: Places, permission: str
) -> None:
    """Buttons, links and actions: what is offered is open, what is not offered is closed."""
    held = {permission, *VIEW} - {""}
    client = member(*held)
    before = everything()
    offered: set[str] = set()
    for page in {place.page for place in places if not permission or permission in place.door.opens}:
        offered |= markup(client.get(page)).addresses
    for place in places:
        door, where = place.door, place.where
        open_to = bool(held & {*door.opens})
        assert open_to or where not in offered, f"{door.name} is offered and closed"
        if open_to and permission in door.opens and door.linked:
            assert where in offered, f"{door.name} is open and nowhere offered"
    assert everything() == before
    for (model, action), needed in ACTIONS.items():
        listed = client.get(url(model, "changelist")).content.decode()
        assert (f'value="{action}"' in listed) is (needed in held), (model, action)
        if needed not in held:
            chosen = [str(place.row.pk) for place in places if place.door.model == model]
            client.post(url(model, "changelist"), {"action": action, "_selected_action": chosen, "index": "0"})
    assert everything() == before
    assert sent == []


def test_a_page_has_nothing_inline_and_a_token_in_every_form(sent: list[str], places: Places) -> None:
    """So a strict policy for content can be set, and no form is forgotten."""
    client = browser(User.objects.create_superuser("boss"))
    for place in places:
        door, where = place.door, place.where
        if door.get == 200 and not door.name.endswith("_export"):
            found = markup(client.get(where))
            assert found.inline == [], door.name
            assert found.without_token == 0, door.name


class Markup(HTMLParser):
    """What a page leads to, and what it should not have."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[str] = set()
        self.inline: list[str] = []
        self.without_token = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.inline += [f"{tag} {name}" for name in values if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in values and "json" not in values.get("type", "")):
            self.inline.append(tag)
        for name in ("href", "action", "formaction"):
            if name in values:
                self.addresses.add(values[name].partition("?")[0].partition("#")[0])
        if tag == "form" and values.get("method", "").lower() == "post":
            self.without_token += 1
        if tag == "input" and values.get("name") == "csrfmiddlewaretoken":
            self.without_token -= 1


def markup(response: Any) -> Markup:
    found = Markup()
    found.feed(response.content.decode())
    return found


def test_a_superuser_finds_no_door_closed_but_those_of_nobody(sent: list[str], places: Places) -> None:
    client = browser(User.objects.create_superuser("boss"))
    assert visit(client, places, lambda door: bool(door.opens)) == []


@pytest.mark.parametrize("door", [door for door in DOORS.values() if door.sends], ids=lambda door: door.name)
def test_what_is_let_out_by_a_permission_does_leave(sent: list[str], places: Places, door: Door) -> None:
    """The other tests would see it leave."""
    place = next(place for place in places if place.door == door)
    client = member(door.opens[0])
    client.get(place.where)
    assert sent == []
    client.post(place.where, place.form)
    assert sent != []


@pytest.mark.case(80)
def test_a_post_needs_its_token(sent: list[str], places: Places) -> None:
    user = User.objects.create_superuser("boss")
    client = browser(user, enforce_csrf_checks=True)
    before = everything()
    for place in places:
        door, where = place.door, place.where
        for form in (place.form, {**place.form, "csrfmiddlewaretoken": "x" * 64}):
            assert client.post(where, form).status_code == 403, door.name
    assert sent == []
    assert everything() == before
    # With the token that a page gave out it goes through.
    client.get(reverse("admin:password_change"))
    token = client.cookies["csrftoken"].value
    for place in places:
        door, where = place.door, place.where
        if door.post in DONE and door.opens:
            assert client.post(where, {**place.form, "csrfmiddlewaretoken": token}).status_code in DONE, door.name


@pytest.mark.case(80)
@pytest.mark.parametrize("method", ["get", "head", "options"])
def test_reading_does_nothing(sent: list[str], places: Places, method: str) -> None:
    """Whatever stands in the query: an idempotency key, a confirmation, an action."""
    client = browser(User.objects.create_superuser("boss"))
    before = everything()
    for place in places:
        door, where = place.door, place.where
        query = {**place.form, "confirm": "1", "post": "yes", "_save": "1"}
        assert getattr(client, method)(where, query).status_code < 500, door.name
    for model, action in ACTIONS:
        client.get(url(model, "changelist"), {"action": action, "_selected_action": "1", "index": "0"})
    assert sent == []
    assert everything() == before
