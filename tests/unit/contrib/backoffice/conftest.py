"""The users of the admin's tests; and the search terms, connected as they are where the app is installed."""

from __future__ import annotations

import pytest

from tests.unit.admin.conftest import boss, nothing_called, staff

__all__ = ["boss", "nothing_called", "staff"]


@pytest.fixture(autouse=True)
def _connected(search_terms: None) -> None:
    """See ``search_terms``."""
