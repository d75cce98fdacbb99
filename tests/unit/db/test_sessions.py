"""Sessions of connections. What a handler's ``SET TIME ZONE`` would do is in tests/integration/test_border.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from payments_integration.db.callbacks import restore_time_zone


def connection(reported: list[str | None]) -> Any:
    """A connection to PostgreSQL that reports these zones, one after the other."""
    status = mock.Mock(side_effect=reported)
    session = SimpleNamespace(info=SimpleNamespace(parameter_status=status))
    return SimpleNamespace(vendor="postgresql", connection=session, timezone_name="UTC", cursor=mock.MagicMock())


@pytest.mark.parametrize(("reported", "statements"), [(["UTC"], 0), ([None], 0), (["Asia/Tokyo", "UTC"], 1)])
def test_only_a_zone_that_was_changed_costs_a_statement(
    reported: list[str | None], statements: int, caplog: pytest.LogCaptureFixture
) -> None:
    tried = connection(reported)
    restore_time_zone(tried)
    assert tried.cursor.call_count == len(caplog.messages) == statements


def test_behind_a_pooler_that_reports_no_change_the_zone_is_set_once(caplog: pytest.LogCaptureFixture) -> None:
    tried = connection(["GMT"] * 4)
    for _ in range(3):
        restore_time_zone(tried)
    assert tried.cursor.call_count == 1
    assert caplog.messages == []
    tried.connection = connection(["GMT"] * 2).connection
    restore_time_zone(tried)
    assert tried.cursor.call_count == 2


def test_other_databases_and_closed_connections_are_left_alone() -> None:
    tried = connection([])
    tried.vendor = "mysql"
    restore_time_zone(tried)
    tried.vendor, tried.connection = "postgresql", None
    restore_time_zone(tried)
    assert not tried.cursor.called
