"""Wake others up through PostgreSQL's NOTIFY. Other databases have nothing like it.

A listener needs its own session. A pooler in transaction mode gives the session to others after each transaction, and
no notification arrives. ``Listener`` notices that, because it first notifies itself.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from django.db import connections

CHANNEL = "payments_integration"
#: The message with which a listener tries its connection. No alias has a colon.
_TRIAL = "listening:"
#: How long a trial message may take.
TRIAL_SECONDS = 5.0


def notify(using: str, message: str) -> None:
    """Send a message to every listener, at the commit of the current transaction or at once. Needs PostgreSQL."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, message])


def can_notify(using: str) -> bool:
    """Return True if the database, and its driver, have notifications."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        return False
    from django.db.backends.postgresql.psycopg_any import is_psycopg3  # noqa: PLC0415  (imports the driver)

    return bool(is_psycopg3)


class Listener:
    """Receives messages on its own connection. Not thread-safe."""

    def __init__(self, using: str) -> None:
        """Connect and listen. Raises the database's errors."""
        # Its own connection: no transaction of ours delays messages, and a pool keeps all of its for the threads.
        self._wrapper: Any = connections[using].copy()
        self._wrapper.settings_dict["OPTIONS"].pop("pool", None)
        self._wrapper.ensure_connection()
        try:
            with self._wrapper.cursor() as cursor:
                cursor.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            self.close()
            raise

    def is_heard(self, using: str) -> bool:
        """Return True if a message that is sent now arrives. Takes a moment, or TRIAL_SECONDS if it does not."""
        trial = f"{_TRIAL}{id(self)}:{time.monotonic_ns()}"
        notify(using, trial)
        end = time.monotonic() + TRIAL_SECONDS
        while (left := end - time.monotonic()) > 0:
            if trial in self._receive(left):
                return True
        return False

    def wait(self, seconds: float) -> set[str]:
        """Return the first messages of the next seconds as they come. Raises the database's errors."""
        return {message for message in self._receive(seconds) if not message.startswith(_TRIAL)}

    def close(self) -> None:
        with suppress(Exception):
            self._wrapper.close()
        self._wrapper.connection = None

    def _receive(self, seconds: float) -> set[str]:
        with self._wrapper.wrap_database_errors:
            return {found.payload for found in self._wrapper.connection.notifies(timeout=seconds, stop_after=1)}
