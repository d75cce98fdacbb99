"""Tell which errors of the database condemn a row: errors about its values or its size.

Any other error is about the database: a full disk, a missing column, a privilege that was revoked. Every row meets it,
so it must condemn none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.apps import apps
from django.db import DatabaseError, DataError, IntegrityError
from django.db.models import AutoField

from payments_integration.db.transactions import is_transient, sqlstate

T = TypeVar("T")

#: Classes of PostgreSQL's SQLSTATE: data exception, integrity constraint violation, program limit exceeded (a value is
#: too large for an index), an exception that the project's trigger raises.
_POSTGRES = {"22", "23", "54", "P0"}
_NOT_NULL, _UNIQUE = "23502", "23505"
#: Error numbers of MariaDB and MySQL: cannot be null, duplicate key, packet too large, out of range, truncated, wrong
#: value, text that the character set lacks, constraint on a value, too long, no such referenced row, JSON, the SIGNAL
#: of the project's trigger.
_MYSQL = {1048, 1062, 1153, 1264, 1265, 1292, 1366, 1406, 1452, 1644, 1690, 3140, 3819, 3988, 4025}
#: The database ends or is not there, which says nothing about its state: PostgreSQL's classes, MariaDB's numbers.
_POSTGRES_AWAY = ("08", "57P")
_MYSQL_AWAY = {1053, 1080, 1317, 1927}
#: MariaDB's driver numbers its own errors, such as a lost connection, from here to below 3000.
_MYSQL_DRIVER = 2000


def condemns(error: BaseException) -> bool:
    """Return True if an error is about the row that was written, so that a retry does not help."""
    if isinstance(error, UnicodeEncodeError):  # the connection's character set lacks a character
        return True
    if not isinstance(error, DatabaseError):
        return False
    code = _code(error)
    if isinstance(code, int):
        return code in _MYSQL
    if sqlstate(error):
        return code[:2] in _POSTGRES and not _is_about_the_schema(error, code)
    # SQLite has classes only. Errors without a code are the driver's, Django's or ours, about a value.
    return isinstance(error, DataError | IntegrityError)


def trouble(error: DatabaseError) -> str:
    """Return the class and code of an error that shows trouble with a database that answers; "" for any other error.

    Without the error's text, which may show a row.
    """
    code = _code(error)
    if not code or condemns(error) or is_transient(error):
        return ""
    if isinstance(code, int):
        is_away = code in _MYSQL_AWAY or _MYSQL_DRIVER <= code < _MYSQL_DRIVER + 1000
    else:
        is_away = code.startswith(_POSTGRES_AWAY)
    return "" if is_away else described(error)


def described(error: BaseException) -> str:
    """Return the class and code of an error, such as ``OperationalError 1366``, without its text."""
    return f"{type(error).__name__} {_code(error)}".strip()


def in_halves(
    items: Sequence[T],
    write: Callable[[Sequence[T]], Any],
    alone: Callable[[T], Any],
    is_about_one: Callable[[BaseException], bool] = condemns,
) -> None:
    """Write items when one of them keeps the others from being written: in halves, quarters and so on, then ``alone``.

    ``write`` writes all or nothing. An error that is about no item (``is_about_one``) is raised.
    """
    if len(items) == 1:
        alone(items[0])
        return
    middle = len(items) // 2
    for half in (items[:middle], items[middle:]):
        if len(half) > 1:
            try:
                write(half)
                continue
            except Exception as error:
                if not is_about_one(error):
                    raise
        in_halves(half, write, alone, is_about_one)


def _code(error: BaseException) -> str | int:
    """Return PostgreSQL's SQLSTATE, the number of MariaDB and MySQL, or SQLite's name of the error; "" without one."""
    cause: Any = error.__cause__
    # The number first: PyMySQL also gives MariaDB's errors an SQLSTATE, which says less.
    for each in (cause, error):  # Django makes some errors of MariaDB anew, with the number
        if each is not None and each.args and type(each.args[0]) is int:
            return int(each.args[0])
    return sqlstate(error) or str(getattr(cause, "sqlite_errorname", ""))


def _is_about_the_schema(error: BaseException, code: str) -> bool:
    """Return True if every row would meet this: an unknown column, or a sequence behind its table."""
    diagnosis: Any = getattr(error.__cause__, "diag", None)
    models = {model._meta.db_table: model._meta for model in apps.get_models()}
    meta = models.get(getattr(diagnosis, "table_name", None) or "")
    if meta is None:
        return False
    if code == _NOT_NULL:
        return diagnosis.column_name not in {field.column for field in meta.concrete_fields}
    return code == _UNIQUE and isinstance(meta.pk, AutoField) and diagnosis.constraint_name == f"{meta.db_table}_pkey"
