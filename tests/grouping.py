"""Tests of dispatch that run twice: with receivers whose items are dispatched one by one, and in groups.

A module imports ``grouped`` and ``pytest_generate_tests``. Its tests that are about single items have the mark
``one_by_one``.
"""

from __future__ import annotations

import pytest

from payments_integration.inbox import claiming


@pytest.fixture(autouse=True)
def grouped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether all receivers are taken for ones that are declared ``database_only``."""
    if request.param:
        monkeypatch.setattr(claiming, "are_database_only", lambda *args: True)
    return bool(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    single = metafunc.definition.get_closest_marker("one_by_one") is not None
    values = [False] if single else [False, True]
    metafunc.parametrize("grouped", values, ids=["one by one", "in groups"][: len(values)], indirect=True)
