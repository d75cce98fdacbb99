"""The app is connected to the mirror, as it is where it is installed."""

from __future__ import annotations

import pytest

from payments_integration import signals
from payments_integration.contrib.finance.apps import record


@pytest.fixture(autouse=True)
def _connected(_no_optional_apps: None) -> None:
    signals.on_mirror_written(record)
