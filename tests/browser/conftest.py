"""A site with a sandbox as its provider, users with permissions, and browser windows for them.

Chromium is Debian's. Playwright runs an event loop in the test's thread, where Django refuses database access unless
``DJANGO_ALLOW_ASYNC_UNSAFE`` is set. That is safe here, because nothing else runs in the loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.urls import reverse
from playwright.sync_api import Browser, expect, sync_playwright

from payments_integration.testing import ProviderSandbox
from tests.browser.middleware import idle
from tests.browser.site import bugs, serving
from tests.browser.visitor import SCREENSHOTS, TIMEOUT_MS, Visitor
from tests.servers import NotInstalled, binary

os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

ARGUMENTS = [
    "--no-sandbox",  # Chromium refuses a sandbox when it runs as root
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
]

Visit = Callable[..., Visitor]
Person = Callable[..., User]

#: From these amounts, in minor units, another person must approve.
LIMITS = {"CLP": 1_000_000}


def chromium() -> str:
    """Its headless shell takes a quarter less of the CPU; not every Debian has it."""
    try:
        return binary("chromium-headless-shell", "chromium-headless-shell")
    except NotInstalled:
        return binary("chromium", "chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # Playwright's own default for expectations is 5 seconds.
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def site(django_db_setup: None, browser: Browser) -> Iterator[str]:
    """The URL of the running site. The browser is closed after the site has stopped."""
    if SCREENSHOTS:
        os.makedirs(SCREENSHOTS, exist_ok=True)
    with serving() as address:
        yield address


@pytest.fixture
def provider(transactional_db: None, settings: Any) -> Iterator[ProviderSandbox]:
    """The sandbox that is the site's provider, with one account."""
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {}, "APPROVAL_LIMITS": LIMITS}
    with ProviderSandbox() as sandbox:
        yield sandbox


@pytest.fixture
def person(transactional_db: None) -> Callable[..., User]:
    """``person("ana", "view_payment", …)``: staff with these permissions of the app; without any a superuser."""

    def make(name: str, *codenames: str) -> User:
        if not codenames:
            return User.objects.create_superuser(name)
        user = User.objects.create_user(name, is_staff=True)
        found = Permission.objects.filter(content_type__app_label="payments_integration", codename__in=codenames)
        assert found.count() == len(set(codenames)), codenames
        user.user_permissions.set(found)
        return user

    return make


@pytest.fixture
def visit(browser: Browser, site: str, provider: ProviderSandbox) -> Iterator[Callable[..., Visitor]]:
    """``visit(user, language="es", dark=True)``: a window of that user, whose errors fail the test."""
    windows: list[Visitor] = []

    def make(user: User | None, **options: Any) -> Visitor:
        windows.append(Visitor(browser, site, user, **options))
        return windows[-1]

    with bugs() as found:
        yield make
        for window in windows:
            window.leave()
        # Requests that the browser no longer waits for still use the database.
        assert idle(TIMEOUT_MS / 1000)
    assert [complaint for window in windows for complaint in window.complaints] == []
    assert found == []


@pytest.fixture
def no_retries(provider: ProviderSandbox, settings: Any) -> None:
    """A receiver that fails once is parked at once."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "RECEIVER_RETRIES": []}


def address(model: str, page: str, obj: Any = None) -> str:
    """The URL path of a page; ``obj``: the row that it shows."""
    args = [] if obj is None else [quote(str(obj.pk))]
    return reverse(f"admin:payments_integration_{model}_{page}", args=args)


@pytest.fixture(params=["en", "es"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _search(search_terms: None) -> None:
    """The back office is connected, as it is on a site that has it."""
