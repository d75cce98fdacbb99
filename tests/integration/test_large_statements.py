"""Batches that no single statement can hold, and one row that fails among many."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from django.core.checks import run_checks
from django.db import DataError, connection

from payments_integration import inbox, projection, schemas
from payments_integration.contrib.backoffice.models import SearchTerm
from payments_integration.db import sizes
from payments_integration.inbox import processing
from payments_integration.models import DueRefresh, Event, Payment
from payments_integration.projection import events as projection_events
from tests import factories
from tests.databases import MARIADB
from tests.factories import body, event

MB = 2**20
EMOJI = "\U0001f600"

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
    pytest.mark.case(134),
]


def payments(count: int, note: str) -> list[bytes]:
    return [
        body(event(factories.payment(id=f"pay_{number}", metadata={"note": note}), id=f"evt_{number}"))
        for number in range(count)
    ]


@contextmanager
def largest_statement() -> Iterator[Callable[[], int]]:
    """How many bytes the values of the largest statement take that was executed within."""
    seen = [0]

    def note(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        seen[0] = max(seen[0], sum(len(str(value).encode()) for value in parameters or ()))
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(note):
        yield lambda: seen[0]


def test_a_batch_of_30_megabytes_is_applied() -> None:
    assert inbox.receive_many("default", payments(120, "x" * (MB // 4)), source="reconciliation").total() == 120
    with largest_statement() as size:
        assert inbox.process() == 120
        # Updates of as many rows.
        later = [
            body(
                event(
                    factories.payment(id=f"pay_{number}", status="processing", metadata={"n": "y" * (MB // 4)}),
                    seconds=9,
                )
            )
            for number in range(120)
        ]
        inbox.receive_many("default", later, source="reconciliation")
        assert inbox.process() == 120
    assert size() <= sizes.MOST_BYTES
    assert set(Payment.objects.values_list("status", flat=True)) == {"processing"}
    assert not Event.objects.filter(state="quarantined").exists()


def test_a_small_packet_makes_small_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata at the limits of the specification in emoji, of which each takes twelve bytes in a JSON column."""
    monkeypatch.setattr(sizes, "packet", lambda using: MB)
    note = {f"key_{number}": EMOJI * 500 for number in range(20)}
    items = [event(factories.payment(id=f"pay_{number}", metadata=note), id=f"evt_{number}") for number in range(50)]
    inbox.receive_many("default", map(body, items), source="reconciliation")
    with largest_statement() as size:
        assert inbox.process() == 50
    if connection.vendor != "postgresql":  # which has no such limit
        assert size() <= MB // 2
    assert Payment.objects.filter(metadata=note).count() == 50 if not MARIADB else Payment.objects.count() == 50


def test_a_row_that_is_too_large_alone_is_quarantined(
    monkeypatch: pytest.MonkeyPatch, attentions: list[dict[str, Any]]
) -> None:
    """Its body fits into the packet, its row does not. MariaDB's real packet is 16 MB; elsewhere a pretended one."""
    note = EMOJI * (300_000 if not MARIADB else 1_500_000)
    if not MARIADB:
        monkeypatch.setattr(sizes, "packet", lambda using: 3 * MB)
        monkeypatch.setattr(projection_events.statements, "_execute", refusing(projection_events.statements._execute))
    inbox.receive_many("default", payments(3, "small"), source="reconciliation")
    big = event(factories.payment(id="pay_big", metadata={"note": note}), id="evt_big")
    inbox.receive("default", json.dumps(big, ensure_ascii=False).encode())
    assert inbox.process() == 4
    assert set(Payment.objects.values_list("pk", flat=True)) == {"pay_0", "pay_1", "pay_2"}
    assert Event.objects.get(state="quarantined").error == "the database refuses it: DataError"
    assert [seen["reason"] for seen in attentions] == ["event_quarantined"]


def refusing(execute: Callable[..., int]) -> Callable[..., int]:
    """PostgreSQL has no such limit: pretend that it had."""

    def run(using: str, sql: str, rows: Any, **options: Any) -> int:
        sizes.portions(rows, using=using)
        return execute(using, sql, rows, **options)

    return run


@pytest.mark.skipif(not MARIADB, reason="the others have no such limit")
def test_a_body_that_is_too_large_is_named_in_the_quarantine() -> None:
    """Of a page of the provider; a delivery is too. No connection is lost over it."""
    big = body(event(factories.payment(metadata={"note": "x" * (17 * MB)}), id="evt_big"))
    connection.ensure_connection()
    before = connection.connection
    for _ in range(2):
        counts = inbox.receive_many("default", [*payments(2, "small"), big], source="reconciliation")
        assert counts.total() == 3
    stray = Event.objects.get(state="quarantined")
    assert b'"unread":{"id":"evt_big"}' in bytes(stray.body or b"")
    assert inbox.receive("default", big) is inbox.Receipt.KNOWN
    assert inbox.process() == 2
    assert connection.connection is before


@pytest.mark.skipif(not MARIADB, reason="the others have no such limit")
def test_a_webhook_body_above_the_packet_is_a_check_error(settings: Any) -> None:
    def found() -> set[str]:
        return {str(message.id) for message in run_checks(databases=["default"])}

    assert "payments_integration.E023" not in found()
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "MAX_WEBHOOK_BYTES": 9 * MB}
    assert "payments_integration.E023" in found()


def test_one_row_of_500_is_found_in_halves(caplog: pytest.LogCaptureFixture) -> None:
    real_values, real_batch, batches = projection_events.rows.row_values, processing._batch, []

    def row_values(resource: Any) -> dict[str, Any]:
        if resource.id == "pay_321":
            raise DataError("out of range")
        return real_values(resource)

    def batch(*args: Any, **options: Any) -> tuple[int, int]:
        batches.append(options)
        return real_batch(*args, **options)

    inbox.receive_many("default", payments(500, "small"), source="reconciliation")
    with (
        mock.patch.object(projection_events.rows, "row_values", row_values),
        mock.patch.object(processing, "_batch", batch),
        caplog.at_level(logging.ERROR),
    ):
        assert processing.process_batch("default") == (500, 0)
    assert len(batches) < 25
    assert Payment.objects.count() == 499
    assert Event.objects.get(state="quarantined").error == "the database refuses it: DataError"


def test_many_search_terms_are_deleted_in_small_statements(
    monkeypatch: pytest.MonkeyPatch, search_terms: None
) -> None:
    monkeypatch.setattr(sizes, "MOST_BYTES", 2000)

    def named(word: str) -> list[bytes]:
        return [
            body(
                event(
                    factories.payment(id=f"pay_{number}", merchant_reference=f"{word}{number} " * 20),
                    seconds=len(word),
                    id=f"evt_{word}_{number}",
                )
            )
            for number in range(40)
        ]

    for word in ("a", "bb"):
        inbox.receive_many("default", named(word), source="reconciliation")
        with largest_statement() as size:
            assert inbox.process() == 40
        assert size() < 40 * 1000
    assert SearchTerm.objects.filter(term__startswith="bb1").exists()
    assert not SearchTerm.objects.filter(term__startswith="a1").exists()


def test_an_answer_that_is_too_large_alone_is_left_out_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "has_packets", lambda using: True)
    monkeypatch.setattr(sizes, "packet", lambda using: MB)
    monkeypatch.setattr(projection_events.statements, "_execute", refusing(projection_events.statements._execute))
    resources = [
        schemas.event_resource(
            schemas.decode_event(body(event(factories.payment(id=f"pay_{number}", metadata={"note": "x" * size}))))
        )
        for number, size in enumerate((1, 2 * MB, 1))
    ]
    refused = projection.write_new("default", resources, answered_at=factories.T0, duration=0.1)
    assert refused == {"pay_1": "the database refuses it: DataError"}
    assert set(Payment.objects.values_list("pk", flat=True)) == {"pay_0", "pay_2"}
    assert not DueRefresh.objects.exists()
