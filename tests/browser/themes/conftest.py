"""The site with a theme, whose pages have inline styles and scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.site import serving


@pytest.fixture(scope="session")
def site(django_db_setup: None, browser: Browser) -> Iterator[str]:
    with serving(strict=False) as address:
        yield address
