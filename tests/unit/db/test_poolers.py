"""What ``docs/deployment.md`` says of the app: nothing outlives a transaction in a session of the database."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import connection

import payments_integration
from payments_integration.db.notifications import Listener
from tests.databases import DRIVER

PACKAGE = Path(payments_integration.__file__).parent
#: Sets limits of a session on MySQL and MariaDB only, on a connection that it closes at the end; listens on one of its
#: own, and notices if nothing can be heard there.
OF_THEIR_OWN = {PACKAGE / "db" / "reconnecting.py", PACKAGE / "db" / "notifications.py"}
#: A cursor, lock, channel, table, setting or statement of a session, which a pooler gives to others after a commit. An
#: ``init_command`` in a hint is the project's, for every session.
OF_A_SESSION = re.compile(
    r"\.iterator\(|pg_(try_)?advisory_(?!xact)|\b(LISTEN|NOTIFY|PREPARE|DECLARE) [a-z]|CREATE TEMP"
    r"|(?<!init_command\": )\"SET (?!LOCAL)"
)


def test_the_app_keeps_nothing_in_a_session() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if path not in OF_THEIR_OWN
        for line in path.read_text().splitlines()
        if OF_A_SESSION.search(line)
    ]
    assert found == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(DRIVER != "psycopg", reason="others have no notifications")
def test_a_listener_takes_no_connection_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pool of two, one of the worker's threads would get none, and no pass would ever reconcile."""
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", {"max_size": 2})
    listener = Listener("default")
    assert listener._wrapper.pool is None
    listener.close()
