"""The SQL views: which columns they have, and the command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, models, transaction

from payments_integration import money
from payments_integration.contrib.reports import sql_views
from payments_integration.contrib.reports.sql_views import EXPONENT, VIEWS, View
from payments_integration.models import MIRRORS, Payment
from tests.databases import MARIADB, execute
from tests.factories import rows

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reports.md"
BY_NAME = pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)

#: What the views leave out, and why. Each new field belongs here or into a view.
WITHHELD: dict[str, set[str]] = {
    # Personal data, texts, and a link with which anybody sees the payment.
    "payment": {
        "payer", "payer_email", "payer_document", "next_action", "metadata", "failure_reason", "checkout_url",
    },
    "payout": {"destination", "metadata", "failure_reason"},
    "refund": {"reason"},
    "depositreference": {"details", "merchant_reference"},
    "balance": set(),
    "balancechange": set(),
    "statuschange": {"state", "attempts", "error"},
    "event": {"body", "content_hash", "error", "traceparent"},
    # Staff's names and texts, the request, and what only the sending needs.
    "operation": {
        "actor", "actor_id", "approved_by", "arguments", "arguments_hash", "body", "body_digest", "error",
        "idempotency_key", "claim_token", "claimed_until", "may_have_run", "next_attempt_at", "note", "request_ids",
        "sent_after", "sent_to",
        "caused_at", "other_objects",
    },
}  # fmt: skip
#: Of every mirror: bookkeeping of the mirror itself, and fields that this version does not know.
OF_MIRRORS = {"state_by", "answer_seconds", "version", "erased_at", "extra"}


def run(*options: str) -> str:
    out = StringIO()
    call_command("payments_views", *options, stdout=out)
    return out.getvalue()


def select(statement: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [dict(zip((column[0] for column in cursor.description), row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture
def created(transactional_db: None) -> Iterator[None]:
    """The views exist, and do again after a test that drops some."""
    yield
    run()


# --- columns


@BY_NAME
def test_every_field_is_in_a_view_or_withheld(view: View) -> None:
    withheld = WITHHELD[str(view.model._meta.model_name)] | (OF_MIRRORS if view.model in MIRRORS.values() else set())
    assert {field.attname for field in view.model._meta.concrete_fields} == withheld | set(view.columns)
    assert withheld.isdisjoint(view.columns)


@BY_NAME
def test_no_view_has_personal_data_json_texts_or_bytes(view: View) -> None:
    fields = {field.attname: field for field in view.model._meta.concrete_fields}
    assert set(getattr(view.model, "personal", ())).isdisjoint(view.columns)
    long = (models.TextField, models.JSONField, models.BinaryField)
    assert [name for name in view.columns if isinstance(fields[name], long)] == []


def test_amounts_have_their_exponent() -> None:
    for view in VIEWS:
        if {"amount", "available"} & set(view.columns):
            assert view.names[view.names.index("currency") + 1] == EXPONENT


@BY_NAME
def test_the_page_lists_each_column(view: View) -> None:
    row = re.search(rf"^\| `{view.name}`[^|]* \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    assert row is not None
    assert re.findall(r"`(\w+)`", row[1]) == list(view.names)


# --- the command


def test_a_report_reads_whole_units(created: None) -> None:
    paid = {"succeeded_at": rows.AT, "payer": {"name": "Ana"}, "merchant_reference": "order-7"}
    rows.payment(id="pay_a", currency="USD", amount_received=1250, **paid)
    rows.payment(id="pay_b", currency="CLP", amount_received=990, **paid)
    [example] = re.findall(r"```sql\n(\s*SELECT .*?);\n", PAGE.read_text(), re.DOTALL)
    found = {row["currency"]: float(row["received"]) for row in select(example)}
    assert found == {"USD": 12.5, "CLP": 990.0}
    [row] = select("SELECT * FROM payments_v_payment WHERE id = 'pay_a'")
    assert tuple(row) == next(view.names for view in VIEWS if view.model is Payment)
    assert (row["status"], row["currency"], row["merchant_reference"]) == ("succeeded", "USD", "order-7")
    assert "Ana" not in str(row)


def test_every_view_shows_each_row_of_its_table_once(created: None) -> None:
    rows.odd_rows()
    for view in VIEWS:
        found = select(f"SELECT * FROM {view.name}")
        assert len(found) == view.model._default_manager.count() > 0
        for row in found:
            assert EXPONENT not in row or row[EXPONENT] == money.exponent(row["currency"])


@pytest.fixture
def writer(created: None) -> Iterator[Callable[[str], None]]:
    """Executes as the app's own user. On MariaDB, which passes writes through a view, as the page's user."""
    if not MARIADB:
        yield execute
        return
    user = connection.copy()
    user.settings_dict = {**user.settings_dict, "USER": "reports", "PASSWORD": "of-a-test"}
    execute(
        "CREATE USER reports IDENTIFIED BY 'of-a-test'",
        *(f"GRANT SELECT ON {user.settings_dict['NAME']}.{view.name} TO reports" for view in VIEWS),
    )

    def write(statement: str) -> None:
        with user.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {VIEWS[0].name}")
            cursor.execute(statement)

    yield write
    user.close()
    execute("DROP USER reports")


def test_nothing_is_written_through_a_view(writer: Callable[[str], None]) -> None:
    rows.odd_rows()
    for view in VIEWS:
        before = list(view.model._default_manager.values())
        for statement in ("DELETE FROM {}", "UPDATE {} SET account = 'x'", "INSERT INTO {} (account) VALUES ('x')"):
            with pytest.raises(DatabaseError), transaction.atomic():
                writer(statement.format(view.name))
        assert list(view.model._default_manager.values()) == before


def test_the_command_can_be_repeated_and_its_work_dropped(created: None) -> None:
    assert run() == "".join(f"created {view.name}\n" for view in VIEWS)
    assert run("--check") == f"{len(VIEWS)} views are up to date.\n"
    assert run("--drop") == "".join(f"dropped {view.name}\n" for view in VIEWS)
    assert run("--drop")
    with pytest.raises(CommandError, match="payments_v_payment does not exist"):
        run("--check")


def test_a_dry_run_prints_what_creates_the_views_and_creates_none(created: None) -> None:
    run("--drop")
    printed = run("--dry-run")
    assert sql_views.problems("default") == [f"{view.name} does not exist" for view in VIEWS]
    execute(*printed.replace(";\n", "\n").splitlines())
    assert run("--check")


def test_the_check_finds_a_view_that_is_out_of_date(created: None) -> None:
    execute("DROP VIEW payments_v_refund", "CREATE VIEW payments_v_refund AS SELECT 1 AS id")
    with pytest.raises(CommandError, match="payments_v_refund has other columns than this version"):
        run("--check")
    run()
    assert run("--check")


def test_a_refusal_of_the_database_is_a_message(created: None) -> None:
    execute("DROP VIEW payments_v_payment", "CREATE TABLE payments_v_payment (id INTEGER)")
    try:
        with pytest.raises(CommandError, match="payments_v_payment"):
            run()
    finally:
        execute("DROP TABLE payments_v_payment")
