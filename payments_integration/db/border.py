"""Guard the border with the project's code: what it hangs on our transactions, and what it changes of our sessions.

Handlers, and receivers of other apps on our rows, give functions to ``transaction.on_commit``. Django calls these
inside the exit of ``atomic``, where an error looks like a failure of the transaction, although that is committed. An
error also keeps the later functions from being called. The project's code may also change a connection's session, or
open a transaction without Django.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import tzinfo
from functools import partial
from inspect import iscoroutine
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from django.conf import settings
from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError
from django.utils import timezone, translation

from payments_integration import telemetry
from payments_integration.exceptions import INTERRUPTIONS
from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)
_SILENT = "_payments_integration_silent_session"
#: The alias of no database.
_LEFT = "left open by a receiver"
#: libpq's PQTRANS_INTRANS and PQTRANS_INERROR.
_POSTGRES_OPEN = (2, 3)


def refuse_coroutine(result: Any) -> None:
    """Raise TypeError if the project's function, which has returned this, has run nothing."""
    if iscoroutine(result):
        result.close()
        raise TypeError("it is async, and nothing awaits it: call asgiref.sync.async_to_sync(function)")


@contextmanager
def restored_language() -> Iterator[None]:
    """Restore the language and the time zone afterwards: the project's code may activate a customer's."""
    language, zone = translation.get_language(), _zone()
    try:
        yield
    finally:
        # To compare takes a fraction of the time that it takes to activate.
        if translation.get_language() != language:
            translation.activate(language) if language else translation.deactivate_all()
        if _zone() is not zone:
            timezone.activate(zone) if zone is not timezone.get_default_timezone() else timezone.deactivate()


def _zone() -> tzinfo:
    return timezone.get_current_timezone()  # noqa: TID251  (as it is in this thread)


def activate_site_language() -> None:
    """Activate what a worker has: the settings' language and time zone. Call it within ``restored_language``.

    A receiver that runs in a person's request writes to customers, and may make calls whose texts it translates: run
    again in another language, it would ask for something else.
    """
    translation.activate(settings.LANGUAGE_CODE)
    timezone.deactivate()


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
        """Replace each callback, in place, by one that logs its errors. Django still decides if it is called.

        It has the present language and time zone: its receiver may have activated a customer's.
        """
        registered: Any = self._connection.run_on_commit
        if len(registered) == self._first:
            return
        call = partial(self._call, translation.get_language(), _zone())
        registered[self._first :] = [
            (savepoints, partial(call, callback), robust) for savepoints, callback, robust in registered[self._first :]
        ]

    def raise_interruption(self) -> None:
        """Raise the first SystemExit, KeyboardInterrupt or GeneratorExit that a callback raised."""
        if self._interruptions:
            raise self._interruptions.pop(0)

    def _call(self, language: str | None, zone: tzinfo, callback: Callable[[], Any]) -> None:
        try:
            with closed_blocks(), translation.override(language), timezone.override(zone):
                result = callback()
            refuse_coroutine(result)
        except INTERRUPTIONS as interruption:
            self._interruptions.append(interruption)
        except BaseException as error:  # also CancelledError, and the time-outs of gevent
            extra = dict(self._about)
            logger.error("A callback after a commit failed: %s", _name_of(callback), exc_info=error, extra=extra)
            telemetry.happened(telemetry.CallbackFailed(self._about.get("account", ""), error))


def _name_of(function: Any) -> str:
    """Return where the function is. Its repr may show a payer: a ``partial`` its arguments, a method its row."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, MethodType):
        owner = function.__self__ if isinstance(function.__self__, type) else type(function.__self__)
        return f"{owner.__module__}.{owner.__qualname__}.{getattr(function.__func__, '__name__', '?')}"
    named: Any = function if isinstance(function, FunctionType | BuiltinFunctionType | type) else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def end_session(connection: BaseDatabaseWrapper) -> None:
    """Close the connection, and its session with it: a pool would give that to the next thread as it is."""
    session: Any = connection.connection
    if session is not None and getattr(connection, "pool", None) is not None:
        with suppress(Exception):
            session.close()
    connection.close()


class _Blocks(list[Any]):
    """The open blocks of a connection, as Django keeps them: one that ends takes the newest from the list.

    ``entered`` has the blocks that were entered since and have not ended. The block of a decorator may be in it often,
    and also be open in other threads.
    """

    def __init__(self, blocks: list[Any]) -> None:
        super().__init__(blocks)
        self.entered: list[Any] = []

    def append(self, block: Any) -> None:
        self.entered.append(block)
        super().append(block)

    def pop(self, *_: Any) -> Any:
        with suppress(ValueError):  # it was entered before
            self.entered.remove(sys._getframe(1).f_locals.get("self"))
        return super().pop()


@contextmanager
def closed_blocks(*databases: BaseDatabaseWrapper) -> Iterator[None]:
    """Raise TransactionManagementError if a block of ``atomic`` is left open, or autocommit off, on these databases.

    If none is given: on any. No later block would then be the outermost one, which commits. A generator that stops
    inside a block leaves it so. Outside a transaction, what the block has done is rolled back. If the generator ends
    later, for example with the garbage, its block raises ConnectionDoesNotExist. It would end the transaction that is
    open by then.
    """
    before: dict[Any, Any] = {state: _blocks(state) for state in databases or connections.all(initialized_only=True)}
    for state in before:
        state.atomic_blocks = _Blocks(state.atomic_blocks)
    are_left = False
    try:
        yield
    finally:
        for state in before if databases else connections.all(initialized_only=True):
            usual = state.settings_dict["AUTOCOMMIT"]  # that code may be the first to use the database
            was_in_block, savepoints, blocks, autocommit = before.get(state) or (False, [], [], usual)
            # Without autocommit no block commits either.
            is_off = autocommit and not (was_in_block or _autocommit(state))
            found = state.atomic_blocks
            if len(found) == len(blocks):
                state.atomic_blocks = blocks
            if is_off or len(found) > len(blocks):
                are_left = True
                for block in getattr(found, "entered", found):
                    block.using = _LEFT
                state.in_atomic_block, state.savepoint_ids, state.atomic_blocks = was_in_block, savepoints, blocks
                if not was_in_block:
                    state.run_on_commit, state.needs_rollback, state.closed_in_transaction = [], False, False
                    try:
                        state.rollback()
                        state.set_autocommit(autocommit)
                    except Error:  # it is closed or lost
                        with suppress(Error):
                            end_session(state)
    if are_left:
        raise TransactionManagementError("a receiver has left autocommit off, or a block of transaction.atomic open")


def _blocks(state: Any) -> tuple[bool, list[Any], list[Any], bool]:
    return state.in_atomic_block, list(state.savepoint_ids), state.atomic_blocks, _autocommit(state)


def _autocommit(state: Any) -> bool:
    """Return True if the connection commits by itself, even if it is yet to be made."""
    return bool(state.settings_dict["AUTOCOMMIT"] if state.connection is None else state.autocommit)


def restore_session(connection: BaseDatabaseWrapper) -> None:
    """Set back what a handler or a view left changed: the encoding, and on PostgreSQL the time zone and DateStyle.

    PostgreSQL answers times in that zone, and Django takes them for times in its own: a newer event would look older.
    With another encoding PostgreSQL refuses texts, and their events go to quarantine; MariaDB stores them garbled.
    Both servers report each change to their client, so this costs no statement.
    """
    session: Any = connection.connection
    if session is None or vars(connection).get(_SILENT) is session:
        return
    with connection.wrap_database_errors:
        if connection.vendor == "postgresql":
            # As Django and psycopg need them.
            wanted = ("TimeZone", connection.timezone_name), ("DateStyle", "ISO"), ("client_encoding", "UTF8")
            status, libpq = session.info.parameter_status, getattr(session, "pgconn", None)
            for name, usual in wanted:
                # psycopg 3 takes three calls for what its libpq knows.
                found = (libpq.parameter_status(name.encode()) or b"").decode() if libpq else status(name)
                if not found or found.partition(",")[0] == usual:
                    continue
                with connection.cursor() as cursor:
                    cursor.execute("SELECT set_config(%s, %s, false)", [name, usual])
                _note(connection, name, found, status(name))
        elif connection.vendor == "mysql" and hasattr(session, "character_set_name"):
            found, usual = session.character_set_name(), connection.settings_dict["OPTIONS"].get("charset", "utf8mb4")
            if found != usual:
                session.set_character_set(usual)
                _note(connection, "The encoding", found, session.character_set_name())


def _note(connection: BaseDatabaseWrapper, name: str, found: str, now: str) -> None:
    if now == found:
        # A pooler in between reports no changes, or the name has another spelling. Do not send the statement again.
        vars(connection)[_SILENT] = connection.connection
    else:
        logger.warning("%s of the database session was %s; it is set back", name, found)


def transaction_status(session: Any) -> int:
    """Return libpq's status of the transaction, from psycopg or psycopg2."""
    # What psycopg 3 itself asks: its ``info`` takes five calls more.
    return int((getattr(session, "pgconn", None) or session.info).transaction_status)


def has_hidden_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the next statement joins a transaction that Django does not know of, and so is not committed.

    ``BEGIN`` as SQL, ``SET autocommit = 0`` or the driver's own autocommit leave one open, also for the next requests
    of the thread. MariaDB's driver does not tell of ``BEGIN``. Costs no statement.
    """
    session: Any = connection.connection
    if session is None or connection.in_atomic_block or not connection.autocommit:
        return False
    # If the project's code has closed it without Django, the next statement raises Django's error.
    try:
        with connection.wrap_database_errors:
            match connection.vendor:
                case "postgresql":
                    return not session.autocommit or transaction_status(session) in _POSTGRES_OPEN
                case "sqlite":
                    return session.in_transaction or getattr(session, "isolation_level", None) is not None
                case "mysql":
                    # Not every driver has it.
                    return hasattr(session, "get_autocommit") and not session.get_autocommit()
    except Error:
        pass
    return False
