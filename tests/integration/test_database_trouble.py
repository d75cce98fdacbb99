"""The database is down, read-only or full: a delivery is answered 503, and the same delivery is taken afterwards."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, close_old_connections, connection, connections
from django.db.backends.signals import connection_created
from django.test import Client

from payments_integration import attention, inbox
from payments_integration.models import Event, Payment, StatusChange
from payments_integration.projection import forget_secrets
from payments_integration.testing import signed_delivery
from tests import factories
from tests.databases import POSTGRES, SQLITE, at_once, execute
from tests.factories import rows
from tests.servers import free_port

EVENT = factories.life()[0]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("woken"),
    pytest.mark.case(76),
    pytest.mark.promise(1),
]


def deliver(event: dict[str, Any] = EVENT) -> int:
    """As a server does: a connection that met an error is not used for the next request."""
    close_old_connections()
    return int(Client().post("/payments/webhook/", **signed_delivery(event, "whsec_default")).status_code)


@contextmanager
def down() -> Iterator[None]:
    """The database's port is closed; SQLite's directory is gone."""
    connection.close()
    where = connection.settings_dict
    name, value = ("NAME", "/nonexistent/payments.sqlite3") if SQLITE else ("PORT", str(free_port()))
    kept, where[name] = where[name], value
    try:
        yield
    finally:
        connection.close()
        where[name] = kept


@contextmanager
def every_session(*statements: str) -> Iterator[None]:
    """On every connection that is opened within."""

    def prepare(connection: Any, **_: Any) -> None:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    connection.close()
    connection_created.connect(prepare)
    try:
        yield
    finally:
        connection_created.disconnect(prepare)
        connection.close()


def read_only() -> AbstractContextManager[None]:
    """As after a failover to a replica."""
    if SQLITE:
        return every_session("PRAGMA query_only = ON")
    if POSTGRES:
        return every_session("SET default_transaction_read_only = on")
    return every_session("SET SESSION TRANSACTION READ ONLY")


FULL_POSTGRES = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$
"""
FULL_POSTGRES_TRIGGER = """
CREATE TRIGGER full_disk BEFORE INSERT ON payments_integration_event FOR EACH ROW EXECUTE FUNCTION full_disk()
"""
FULL_POSTGRES_OFF = ["DROP TRIGGER full_disk ON payments_integration_event", "DROP FUNCTION full_disk()"]
FULL_MARIADB = """
CREATE TRIGGER full_disk BEFORE INSERT ON payments_integration_event FOR EACH ROW
SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'
"""


@contextmanager
def full() -> Iterator[None]:
    """No page is left. Of the servers the error that they answer then, raised where the row would be written."""
    if SQLITE:
        execute("VACUUM")
        with connection.cursor() as cursor:
            pages = cursor.execute("PRAGMA page_count").fetchone()[0]
        with every_session(f"PRAGMA max_page_count = {pages}"):
            yield
        return
    if POSTGRES:
        execute(FULL_POSTGRES, FULL_POSTGRES_TRIGGER)
    else:
        execute(FULL_MARIADB)
    try:
        yield
    finally:
        execute(*(FULL_POSTGRES_OFF if POSTGRES else ["DROP TRIGGER full_disk"]))


TROUBLE: dict[str, Callable[[], AbstractContextManager[None]]] = {"down": down, "read-only": read_only, "full": full}


@pytest.mark.parametrize("trouble", ["down", pytest.param("read-only", marks=pytest.mark.own_session), "full"])
@pytest.mark.parametrize("warm", [True, False], ids=["secrets known", "secrets unknown"])
def test_a_delivery_is_answered_503_and_stored_when_it_is_sent_again(
    trouble: str, warm: bool, caplog: pytest.LogCaptureFixture
) -> None:
    big = {**EVENT, "data": {**EVENT["data"], "metadata": {"note": "x" * 100_000}}}
    if warm:
        assert deliver(factories.life("pay_2")[0]) == 200
    else:
        forget_secrets()
    before = Event.objects.count()
    with caplog.at_level(logging.CRITICAL, logger="django"), TROUBLE[trouble]():
        assert deliver(big) == 503
        assert deliver(big) == 503
    assert Event.objects.count() == before
    assert "pay_1" not in caplog.text, "a database's message may show the row"
    assert deliver(big) == 200
    assert deliver(big) == 200
    inbox.process()
    assert Payment.objects.get(pk="pay_1").metadata == {"note": "x" * 100_000}


@pytest.mark.own_session
def test_a_connection_that_the_server_closed_is_replaced() -> None:
    """A restart of the server, seen from a process that keeps its connection. SQLite has no server: it is closed."""
    assert deliver(factories.life("pay_2")[0]) == 200
    end_connection()
    first = int(Client().post("/payments/webhook/", **signed_delivery(EVENT, "whsec_default")).status_code)
    assert first == (200 if SQLITE else 503)
    assert deliver() == 200
    assert Event.objects.filter(id=EVENT["id"]).count() == 1


def end_connection() -> None:
    if SQLITE:
        connection.close()
        return
    question = "SELECT pg_backend_pid()" if POSTGRES else "SELECT connection_id()"
    with connection.cursor() as cursor:
        cursor.execute(question)
        number = int(cursor.fetchone()[0])
    at_once(lambda: execute(f"SELECT pg_terminate_backend({number})" if POSTGRES else f"KILL CONNECTION {number}"))


@pytest.mark.own_session
def test_processing_resumes_after_an_outage() -> None:
    """Processing meets the trouble too: nothing is marked, and all is done afterwards."""
    inbox.receive_many("default", map(factories.body, factories.life()), source="webhook")
    with read_only(), pytest.raises(DatabaseError, match=r"(?i)read.?only"):
        inbox.process()
    assert set(Event.objects.values_list("state", "attempts")) == {("pending", 0)}
    assert inbox.process() == 5
    assert Payment.objects.get().status == "chargeback"


def raising(postgres: str, mariadb: int) -> Callable[[], AbstractContextManager[None]]:
    """The server's own error, raised where the row of a payment would be written."""

    @contextmanager
    def trouble() -> Iterator[None]:
        table, name = "payments_integration_payment", "trouble"
        if POSTGRES:
            execute(
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION 'trouble' USING ERRCODE = '{postgres}'; END $$",
                f"CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()",
            )
        else:
            execute(
                f"CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW"
                f" SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {mariadb}, MESSAGE_TEXT = 'trouble'"
            )
        try:
            yield
        finally:
            execute(f"DROP TRIGGER {name} ON {table}" if POSTGRES else f"DROP TRIGGER {name}")
            execute(*([f"DROP FUNCTION {name}()"] if POSTGRES else []))

    return trouble


@contextmanager
def column_missing() -> Iterator[None]:
    """A migration that is ahead of this version."""
    rename = "ALTER TABLE payments_integration_payment RENAME COLUMN {} TO {}"
    execute(rename.format("failure_reason", "renamed"))
    try:
        yield
    finally:
        execute(rename.format("renamed", "failure_reason"))


@contextmanager
def column_of_a_later_version() -> Iterator[None]:
    """This version does not know it, and it has no default: every INSERT lacks it."""
    execute("ALTER TABLE payments_integration_payment ADD COLUMN later VARCHAR(9) NOT NULL")
    try:
        yield
    finally:
        execute("ALTER TABLE payments_integration_payment DROP COLUMN later")


@contextmanager
def sequence_behind() -> Iterator[None]:
    """A table was restored without its sequence. MariaDB's counters follow their tables."""
    for _ in range(50):
        rows.change(object_id="pay_of_long_ago")
    keys = StatusChange.objects.order_by("pk").values_list("pk", flat=True)
    first, last = keys[0], keys[49]
    move = "SELECT setval(pg_get_serial_sequence('payments_integration_statuschange', 'id'), {})"
    execute(move.format(first))
    yield
    execute(move.format(last))


ABOUT_THE_DATABASE: dict[str, tuple[Callable[[], AbstractContextManager[None]], str]] = {
    "disk full": (raising("53100", 1114), "53100|1114"),
    "privilege revoked": (raising("42501", 1142), "42501|1142"),
    "column missing": (column_missing, "42703|1054"),
    "column of a later version": (column_of_a_later_version, "23502|1364"),
    "read-only": (read_only, "25006|1792"),
    **({"sequence behind": (sequence_behind, "23505")} if POSTGRES else {}),
}


@pytest.mark.skipif(SQLITE, reason="its errors have no codes for these")
@pytest.mark.own_session
@pytest.mark.case(148)
@pytest.mark.parametrize("trouble", ABOUT_THE_DATABASE)
def test_an_error_about_the_database_condemns_no_event(trouble: str, attentions: list[dict[str, Any]]) -> None:
    inbox.receive_many(
        "default", [factories.body(item) for n in range(5) for item in factories.life(f"pay_{n}")], source="webhook"
    )
    attention._troubles.clear()
    within, code = ABOUT_THE_DATABASE[trouble]
    with within():
        for _ in range(2):
            with pytest.raises(DatabaseError):
                inbox.process()
            close_old_connections()
        assert set(Event.objects.values_list("state", "attempts")) == {("pending", 0)}
        [seen] = attentions
        assert (seen["reason"], seen["account"]) == ("database", "")
        assert re.search(rf"\(\w+ ({code})\)", seen["message"])
    assert inbox.process() == 25
    assert set(Payment.objects.values_list("status", flat=True)) == {"chargeback"}


_TRIGGER = "CREATE TRIGGER guard BEFORE INSERT ON payments_integration_payment FOR EACH ROW"
_IF_BAD = "IF NEW.id = 'pay_bad' THEN"
_FUNCTION = "CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS"
GUARD = (
    [f"{_TRIGGER} WHEN NEW.id = 'pay_bad' BEGIN SELECT RAISE(ABORT, 'no order'); END"]
    if SQLITE
    else [
        f"{_FUNCTION} $$ BEGIN {_IF_BAD} RAISE EXCEPTION 'no order'; END IF; RETURN NEW; END $$",
        f"{_TRIGGER} EXECUTE FUNCTION guard()",
    ]
    if POSTGRES
    else [f"{_TRIGGER} BEGIN {_IF_BAD} SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no order'; END IF; END"]
)


@pytest.mark.case(148)
def test_a_trigger_of_the_project_that_refuses_a_row_stops_no_other(attentions: list[dict[str, Any]]) -> None:
    items = [*factories.life("pay_1"), factories.life("pay_bad")[0], *factories.life("pay_2")]
    inbox.receive_many("default", map(factories.body, items), source="webhook")
    execute(*GUARD)
    try:
        assert inbox.process() == len(items)
    finally:
        execute("DROP FUNCTION guard() CASCADE" if POSTGRES else "DROP TRIGGER guard")
    assert set(Payment.objects.values_list("pk", "status")) == {("pay_1", "chargeback"), ("pay_2", "chargeback")}
    assert [seen["reason"] for seen in attentions] == ["event_quarantined"]
    inbox.replay(Event.objects.get(state="quarantined"))
    assert inbox.process() == 1
    assert Payment.objects.filter(pk="pay_bad").exists()


@pytest.fixture(autouse=True)
def _reconnected() -> Iterator[None]:
    yield
    connections.close_all()
