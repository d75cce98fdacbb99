"""Guard the border with others' code: what our transaction calls after its commit, and the session it runs in.

Handlers, and receivers of other apps on our rows, give functions to ``transaction.on_commit``. Django calls these
inside the exit of ``atomic``, where an error looks like a failure of the transaction, although that is committed. An
error also keeps the later functions from being called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from payments_integration import telemetry
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)
_SILENT = "_payments_integration_silent_session"


def restore_time_zone(connection: BaseDatabaseWrapper) -> None:
    """Set back the time zone of PostgreSQL's session, which ``SET TIME ZONE`` in a handler or a view leaves changed.

    PostgreSQL answers times in that zone, and Django takes them for times in its own: a newer event would look older.
    The server reports each change to its client, so this costs no statement.
    """
    session: Any = connection.connection
    if connection.vendor != "postgresql" or session is None or vars(connection).get(_SILENT) is session:
        return
    found = session.info.parameter_status("TimeZone")
    if not found or found == connection.timezone_name:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('TimeZone', %s, false)", [connection.timezone_name])
    if session.info.parameter_status("TimeZone") == found:
        # A pooler in between reports no changes. Do not send the statement again.
        vars(connection)[_SILENT] = session
    else:
        logger.warning("The time zone of the database session was %s; it is set back", found)


class Callbacks:
    """The callbacks that are registered on a connection from now on.

    Create it before the transaction. Call :meth:`contain` as the transaction's last step, and
    :meth:`raise_interruption` after its commit.
    """

    def __init__(self, connection: BaseDatabaseWrapper, about: Mapping[str, str]) -> None:
        self._connection = connection
        self._first = len(connection.run_on_commit)
        self._about = about
        self._interruptions: list[BaseException] = []

    def contain(self) -> None:
        """Replace each callback, in place, by one that logs its errors. Django still decides if it is called."""
        registered: Any = self._connection.run_on_commit
        registered[self._first :] = [
            (savepoints, self._contained(callback), robust)
            for savepoints, callback, robust in registered[self._first :]
        ]

    def raise_interruption(self) -> None:
        """Raise the first SystemExit, KeyboardInterrupt or GeneratorExit that a callback raised."""
        if self._interruptions:
            raise self._interruptions.pop(0)

    def _contained(self, callback: Callable[[], Any]) -> Callable[[], None]:
        @wraps(callback)
        def call() -> None:
            try:
                callback()
            except INTERRUPTIONS as interruption:
                self._interruptions.append(interruption)
            except BaseException as error:  # also CancelledError, and the time-outs of gevent
                extra = dict(self._about)
                logger.error("A callback after a commit failed: %r", callback, exc_info=error, extra=extra)
                telemetry.happened(telemetry.CallbackFailed(self._about.get("account", ""), error))

        return call
