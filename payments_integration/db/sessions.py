"""Set back what the project's code changed for the whole session of a connection."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

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
