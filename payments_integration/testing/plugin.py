"""The pytest plugin: loaded by itself where the app is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest


@pytest.fixture
def payments_sandbox() -> Iterator[Any]:
    """A running provider with the account "default" pointed at it: see ``payments_integration.testing``."""
    # Not at the top: the plugin is loaded before Django's settings are.
    with import_module("payments_integration.testing.provider").ProviderSandbox() as sandbox:
        yield sandbox
