"""Every URL and action of the admin with every permission: exactly what is allowed is accessible.

The URLs come from Django's resolver, the permissions from ``routes``. A page without an entry there fails.
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
from tests.factories import rows
from tests.unit.admin.backends import RememberingBackend
from tests.unit.admin.conftest import browser, url
from tests.unit.admin.routes import ACTIONS, APPS, ROUTES, Route, address, is_for_a_row, names

pytestmark = pytest.mark.slow

APP_MODELS = [model for label in APPS for model in apps.get_app_config(label).get_models()]
#: Every permission of the app: Django's four for each model, and our own.
PERMISSIONS = sorted(
    {f"{verb}_{model._meta.model_name}" for model in APP_MODELS for verb in model._meta.default_permissions}
    | {codename for model in APP_MODELS for codename, _ in model._meta.permissions}
)
#: Those that a route asks for.
ASKED_FOR = sorted({name for route in ROUTES.values() for name in route.permissions})
VIEW = [f"view_{model}" for model in rows.MAKERS]
#: The permissions that allow more than viewing.
OWN_PERMISSIONS = sorted(
    {name for route in ROUTES.values() for name in route.permissions if not route.name.endswith("_change")}
    - {name for model in rows.MAKERS for name in (f"view_{model}", f"change_{model}")}
    | {"change_operation"}
)
LOGIN = 302
#: With access, a POST is answered by the page itself or by a redirect.
DONE = (200, 302)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes every request to the provider. Nothing is sent, and there is no answer."""
    noted: list[str] = []

    def exchange(self: Transport, method: str, path: str, **kwargs: Any) -> Any:
        noted.append(f"{method} {path}")
        raise NoAnswer(f"{method} {path}: nothing is sent here")

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
    """Thousands of requests: sessions and users are not read again, and tracebacks are not formatted."""
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.AUTHENTICATION_BACKENDS = ["tests.unit.admin.backends.RememberingBackend"]
    RememberingBackend.users.clear()
    monkeypatch.setattr(logging.getLogger("django.request"), "disabled", True)


@dataclass(frozen=True)
class Place:
    """A route with a row, and its URL."""

    route: Route
    row: Any
    where: str

    @property
    def form(self) -> dict[str, Any]:
        return self.route.filled(self.row)

    @property
    def page(self) -> str:
        """The page that should link to it: the row's page, or the list."""
        return (
            url(self.route.model, "change", self.row.pk)
            if is_for_a_row(self.route)
            else url(self.route.model, "changelist")
        )


Places = list[Place]


@pytest.fixture
def places(db: None) -> Places:
    """Every route."""
    plain = {model: make() for model, make in rows.MAKERS.items()}
    found = [(route, route.row() if route.row else plain[route.model]) for route in ROUTES.values()]
    return [Place(route, row, address(route, row)) for route, row in found]


def member(*codenames: str, **fields: Any) -> Client:
    """Staff with these permissions of the app."""
    user = User.objects.create_user(f"user-{User.objects.count()}", **{"is_staff": True, **fields})
    found = Permission.objects.filter(content_type__app_label__in=APPS, codename__in=codenames)
    assert found.count() == len(set(codenames))
    user.user_permissions.set(found)
    return browser(user)


def everything() -> dict[str, list[dict[str, Any]]]:
    """The content of the app's tables and of the admin's history."""
    models = [*APP_MODELS, LogEntry]
    return {model._meta.label: list(model._default_manager.order_by("pk").values()) for model in models}


def expected(route: Route, method: str, *, permissions: bool) -> tuple[int, ...]:
    if not permissions:
        return (route.refused,)
    if method == "get":
        return (route.get,)
    return DONE if route.post in DONE else (route.post,)


def visit(client: Client, places: Places, permissions: Callable[[Route], bool]) -> list[str]:
    """Request every route by GET and POST; returns a line for each unexpected status code."""
    wrong = []
    for place in places:
        route, where = place.route, place.where
        for method in ("get", "post"):
            response = getattr(client, method)(where, place.form)
            if response.status_code not in expected(route, method, permissions=permissions(route)):
                wrong.append(f"{method} {route.name}: {response.status_code}")
    return wrong


def test_every_url_of_the_admin_has_a_route() -> None:
    assert names() == set(ROUTES)


def test_every_action_of_the_admin_is_listed() -> None:
    registered = [model for model in APP_MODELS if admin.site.is_registered(model)]
    # Rows of the to-do list are computed, and the overview is a link: they have no other page.
    assert {model._meta.model_name for model in registered} == {*rows.MAKERS, "todo", "overview"}
    found = {
        # Since Django 6.1 an action is not a tuple.
        (model._meta.model_name, getattr(action, "name", None) or action[1])
        for model in registered
        for action in admin.site.get_model_admin(model)._get_base_actions()
    }
    # Django's own action needs the permission to delete, which is always refused.
    assert {each for each in found if each[1] != "delete_selected"} == set(ACTIONS)


def test_routes_and_actions_name_existing_permissions() -> None:
    named = {codename for route in ROUTES.values() for codename in route.permissions} | set(ACTIONS.values())
    assert named <= set(PERMISSIONS)


@pytest.mark.any_database
@pytest.mark.case(88)
@pytest.mark.parametrize("who", ["anonymous", "customer", "left"])
def test_users_who_are_not_staff_are_asked_to_log_in(sent: list[str], places: Places, who: str) -> None:
    clients = {
        "anonymous": Client,
        "customer": lambda: member(*PERMISSIONS, is_staff=False),
        "left": lambda: member(*PERMISSIONS, is_active=False),
    }
    client = clients[who]()
    before = everything()
    for place in places:
        route, where = place.route, place.where
        for method in ("get", "post", "put", "delete", "head", "options", "patch"):
            response = getattr(client, method)(where, place.form)
            assert response.status_code == LOGIN, (method, route.name)
            assert response.headers["Location"].startswith(reverse("admin:login")), (method, route.name)
    assert sent == []
    assert everything() == before


@pytest.mark.any_database
@pytest.mark.case(88)
def test_staff_without_permissions_has_no_access(sent: list[str], places: Places) -> None:
    client = member()
    before = everything()
    for place in places:
        route, where = place.route, place.where
        for method in ("get", "post", "put", "delete", "head", "options", "patch"):
            response = getattr(client, method)(where, place.form)
            # Some pages check the method first.
            refused = (route.refused,) if method in ("get", "post") else (route.refused, 405)
            assert response.status_code in refused, (method, route.name)
    assert sent == []
    assert everything() == before


@pytest.mark.any_database
@pytest.mark.case(88)
@pytest.mark.parametrize("permission", ASKED_FOR)
def test_each_permission_gives_access_to_its_routes_only(sent: list[str], places: Places, permission: str) -> None:
    client = member(permission)
    closed = [place for place in places if permission not in place.route.permissions]
    before = everything()
    assert visit(client, closed, lambda route: False) == []
    assert sent == []
    assert everything() == before
    mine = [place for place in places if permission in place.route.permissions]
    assert visit(client, mine, lambda route: True) == []


@pytest.mark.any_database
@pytest.mark.case(88)
def test_permissions_that_no_route_asks_for_give_access_to_nothing(sent: list[str], places: Places) -> None:
    """Most are those by which Django adds and deletes rows. One user has all of them, because they are many."""
    client = member(*{*PERMISSIONS} - {*ASKED_FOR})
    before = everything()
    assert visit(client, places, lambda route: False) == []
    assert sent == []
    assert everything() == before


@pytest.mark.any_database
@pytest.mark.case(88)
@pytest.mark.parametrize("permission", ["", *OWN_PERMISSIONS])
def test_pages_offer_exactly_what_the_permission_allows(sent: list[str], places: Places, permission: str) -> None:
    """Buttons, links and actions: what is offered is accessible, and the other way round."""
    held = {permission, *VIEW} - {""}
    client = member(*held)
    before = everything()
    offered: set[str] = set()
    for page in {place.page for place in places if not permission or permission in place.route.permissions}:
        offered |= markup(client.get(page)).addresses
    for place in places:
        route, where = place.route, place.where
        open_to = bool(held & {*route.permissions})
        assert open_to or where not in offered, f"{route.name} is offered without access"
        if open_to and permission in route.permissions and route.linked:
            assert where in offered, f"{route.name} is accessible and not offered"
    assert everything() == before
    for (model, action), needed in ACTIONS.items():
        listed = client.get(url(model, "changelist")).content.decode()
        assert (f'value="{action}"' in listed) is (needed in held), (model, action)
        if needed not in held:
            chosen = [str(place.row.pk) for place in places if place.route.model == model]
            client.post(url(model, "changelist"), {"action": action, "_selected_action": chosen, "index": "0"})
    assert everything() == before
    assert sent == []


@pytest.mark.any_database
def test_no_page_has_inline_code_and_every_form_has_a_csrf_token(sent: list[str], places: Places) -> None:
    """A strict Content-Security-Policy can be set."""
    client = browser(User.objects.create_superuser("boss"))
    for place in places:
        route, where = place.route, place.where
        if route.get == 200 and not route.name.endswith("_export"):
            found = markup(client.get(where))
            assert found.inline == [], route.name
            assert found.without_token == 0, route.name


@pytest.mark.any_database
def test_every_page_links_to_the_overview(sent: list[str], places: Places) -> None:
    client = browser(User.objects.create_superuser("boss"))
    link = f'<li><a href="{reverse("admin:app_list", args=[APPS[0]])}"'
    shown = [place for place in places if place.route.get == 200]
    answers = {place.route.name: client.get(place.where) for place in shown}
    pages = {
        name: answer for name, answer in answers.items() if answer.headers["Content-Type"].startswith("text/html")
    }
    assert len(pages) > 3 * len(rows.MAKERS)
    assert [name for name, answer in pages.items() if link not in answer.content.decode()] == []


@pytest.mark.any_database
def test_pages_do_not_link_to_an_overview_that_the_user_may_not_see(sent: list[str], places: Places) -> None:
    place = next(place for place in places if place.route.name == "payment_refund")
    client = member("refund_payment")
    assert client.get(reverse("admin:app_list", args=[APPS[0]])).status_code == 404
    answer = client.get(place.where)
    assert answer.status_code == 200
    link = f'<li><a href="{reverse("admin:app_list", args=[APPS[0]])}"'
    assert link not in answer.content.decode()


class Markup(HTMLParser):
    """A page's links, inline code and forms without a CSRF token."""

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


@pytest.mark.any_database
def test_a_superuser_has_access_to_everything_but_closed_routes(sent: list[str], places: Places) -> None:
    client = browser(User.objects.create_superuser("boss"))
    # A change of the to-do list needs a permission of its own, which a superuser has.
    assert visit(client, places, lambda route: bool(route.permissions)) == ["post todo_changelist: 302"]


@pytest.mark.any_database
@pytest.mark.parametrize("route", [route for route in ROUTES.values() if route.sends], ids=lambda route: route.name)
def test_a_permitted_post_sends_a_request(sent: list[str], places: Places, route: Route) -> None:
    """So the other tests would notice a request."""
    place = next(place for place in places if place.route == route)
    client = member(route.permissions[0])
    client.get(place.where)
    assert sent == []
    client.post(place.where, place.form)
    assert sent != []


@pytest.mark.any_database
@pytest.mark.case(80)
def test_every_post_needs_a_csrf_token(sent: list[str], places: Places) -> None:
    user = User.objects.create_superuser("boss")
    client = browser(user, enforce_csrf_checks=True)
    before = everything()
    for place in places:
        route, where = place.route, place.where
        for form in (place.form, {**place.form, "csrfmiddlewaretoken": "x" * 64}):
            assert client.post(where, form).status_code == 403, route.name
    assert sent == []
    assert everything() == before
    # With the token of a page it is accepted.
    client.get(reverse("admin:password_change"))
    token = client.cookies["csrftoken"].value
    for place in places:
        route, where = place.route, place.where
        if route.post in DONE and route.permissions:
            assert client.post(where, {**place.form, "csrfmiddlewaretoken": token}).status_code in DONE, route.name


@pytest.mark.any_database
@pytest.mark.case(80)
@pytest.mark.parametrize("method", ["get", "head", "options"])
def test_get_head_and_options_change_and_send_nothing(sent: list[str], places: Places, method: str) -> None:
    """Also with an idempotency key, a confirmation or an action in the query string."""
    client = browser(User.objects.create_superuser("boss"))
    before = everything()
    for place in places:
        route, where = place.route, place.where
        query = {**place.form, "confirm": "1", "post": "yes", "_save": "1"}
        assert getattr(client, method)(where, query).status_code < 500, route.name
    for model, action in ACTIONS:
        client.get(url(model, "changelist"), {"action": action, "_selected_action": "1", "index": "0"})
    assert sent == []
    assert everything() == before
