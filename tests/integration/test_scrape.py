"""A scrape of metrics reads no more rows of a large table than of a small one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from payments_integration.models import EventState
from tests.factories import rows
from tests.integration import scraping

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the server's own count of rows"),
    pytest.mark.django_db(transaction=True),
]


@pytest.mark.parametrize("is_analysed", [True, False])
def test_a_hundred_times_as_many_finished_events_are_as_many_rows_to_read(is_analysed: bool) -> None:
    now = timezone.now()
    for account in ("default", "second"):
        for state in (EventState.PENDING, EventState.APPLIED, EventState.PARKED):
            rows.event(account=account, state=state, created_at=now - timedelta(days=1), received_at=now)
        rows.operation(account=account)
        rows.run(account=account, kind="events")
    scraping.forget_statistics()
    read = []
    for first, count in ((0, 4_000), (4_000, 96_000)):
        scraping.store_finished(first, count)
        if is_analysed:
            scraping.analyse()
        scraping.rows_read()
        read.append(scraping.rows_read())
    small, large = read
    assert 0 < large <= small * 1.1, "a page of an index more or less"
    assert large < 10_000, "no table was read"
