"""Set back what the project's code changed for the whole session of a connection."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)


def restore_time_zone(connection: BaseDatabaseWrapper) -> None:
    """Set back the time zone of PostgreSQL's session, which ``SET TIME ZONE`` in a handler or a view leaves changed.

    PostgreSQL answers times in that zone, and Django takes them for times in its own: a newer event would look older.
    The server reports each change to its client, so this costs no statement.
    """
    session: Any = connection.connection
    if connection.vendor != "postgresql" or session is None:
        return
    found = session.info.parameter_status("TimeZone")
    if connection.timezone_name and found != connection.timezone_name:
        logger.warning("The time zone of the database session was %s; it is set back", found)
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('TimeZone', %s, false)", [connection.timezone_name])
