"""Offer the sandbox as a pytest fixture. Pytest loads this plugin automatically if the app is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest


def pytest_collection_finish() -> None:
    """Import what fixes its types and its base classes, before a test replaces them (freezegun, vcrpy)."""
    from django.apps import apps  # noqa: PLC0415  (projects without Django load the plugin too)

    if apps.ready and apps.is_installed("payments_integration"):
        import_module("payments_integration.client.transport")


@pytest.fixture
def payments_sandbox(settings: Any) -> Iterator[Any]:
    """Run a sandbox that the account "default" uses. See ``payments_integration.testing``."""
    # Imported here because the plugin is loaded before Django is configured.
    with import_module("payments_integration.testing.provider").ProviderSandbox(settings=settings) as sandbox:
        yield sandbox
