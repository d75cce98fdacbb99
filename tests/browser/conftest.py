"""A site with a provider behind it, people who may do this or that, and browsers for them.

Chromium is Debian's. Playwright runs an event loop in the thread of the test, from which Django would not let its
database be used: nothing else runs in that loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.urls import reverse
from playwright.sync_api import Browser, expect, sync_playwright

from payments_integration.testing import ProviderSandbox
from tests.browser.middleware import idle
from tests.browser.site import bugs, serving
from tests.browser.visitor import PATIENCE_MS, SCREENSHOTS, Visitor
from tests.servers import binary

os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

ARGUMENTS = [
    "--no-sandbox",  # it refuses to have one where we are root
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
]

Visit = Callable[..., Visitor]
Person = Callable[..., User]

#: From these amounts on a second person must approve, in minor units.
LIMITS = {"CLP": 1_000_000}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # What a page is waited to show: by itself it is a third of the patience with a page, whatever that is.
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=binary("chromium", "chromium"), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def site(django_db_setup: None, browser: Browser) -> Iterator[str]:
    """The address of the site; the browser is closed after it is gone."""
    if SCREENSHOTS:
        os.makedirs(SCREENSHOTS, exist_ok=True)
    with serving() as address:
        yield address


@pytest.fixture
def provider(transactional_db: None, settings: Any) -> Iterator[ProviderSandbox]:
    """The provider behind the site: one account."""
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {}, "APPROVAL_LIMITS": LIMITS}
    # The overview keeps for a minute what it has counted: in another test's database.
    cache.clear()
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
    """``visit(user, language="es", dark=True)``: a window of that person. At the end nothing may have gone wrong."""
    windows: list[Visitor] = []

    def make(user: User | None, **options: Any) -> Visitor:
        windows.append(Visitor(browser, site, user, **options))
        return windows[-1]

    with bugs() as found:
        yield make
        for window in windows:
            window.leave()
        # What a page asked for and did not wait for still uses the database.
        assert idle(PATIENCE_MS / 1000)
    assert [complaint for window in windows for complaint in window.complaints] == []
    assert found == []


@pytest.fixture
def no_retries(provider: ProviderSandbox, settings: Any) -> None:
    """A receiver that fails once is given up."""
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "RECEIVER_RETRIES": []}


def address(model: str, page: str, obj: Any = None) -> str:
    """The path of a page; ``obj``: the row it is about."""
    args = [] if obj is None else [quote(str(obj.pk))]
    return reverse(f"admin:payments_integration_{model}_{page}", args=args)


@pytest.fixture(params=["en", "es"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)
