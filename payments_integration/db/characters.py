"""Tell which characters the database can store: not all, if it was created as utf8mb3, latin1 or LATIN1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from django.apps import apps
from django.db import connections

#: Character sets that store every text.
COMPLETE = frozenset({"utf8mb4", "UTF8", "SQL_ASCII"})
#: Python's name of a character set, if it is different.
_CODECS = {"latin1": "cp1252"}
#: Characters from here on take four bytes.
_BEYOND_UTF8MB3 = "\U00010000"


def writable(text: str, using: str) -> str:
    """Write each character of our own text that the database lacks as ``\\U0001f600``."""
    if text.isascii():
        return text
    # No database has half of a surrogate pair, which stands for a byte of a file name that is not UTF-8.
    text = text.encode(errors="backslashreplace").decode()
    if (name := character_set(using)) in COMPLETE:
        return text
    return "".join(char if _has(name, char) else ascii(char)[1:-1] for char in text)


def lacking(values: Mapping[str, Any], using: str) -> dict[str, str]:
    """Map each value's name to its first character that the database cannot store.

    MariaDB's JSON stores every character, so only texts count there. No statement for ASCII.
    """
    is_deep = connections[using].vendor == "postgresql"
    found: dict[str, str] = {}
    for key, value in values.items():
        for text in _texts(value, is_deep):
            if not text.isascii() and (name := character_set(using)) not in COMPLETE:
                for char in text:
                    if not _has(name, char):
                        found.setdefault(key, char)
    return found


def character_set(using: str) -> str:
    """Return the database's name for the character set of the app's texts."""
    return _character_set(using, str(connections[using].settings_dict["NAME"]))


@lru_cache(maxsize=32)
def _character_set(using: str, database: str) -> str:
    connection: Any = connections[using]
    if connection.vendor == "sqlite":
        return "UTF8"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SHOW server_encoding")
        else:
            # Other columns of the app, such as ids, name their character set themselves.
            cursor.execute(
                "SELECT character_set_name FROM information_schema.columns"
                " WHERE table_schema = DATABASE() AND table_name = %s AND column_name = 'error'",
                [apps.get_model("payments_integration", "Event")._meta.db_table],
            )
        found = cursor.fetchone()
        if found is None:  # before the first migration
            cursor.execute("SELECT @@character_set_database")
            found = cursor.fetchone()
    return str(found[0])


def of_connection(using: str) -> str:
    """Return the name of the character set in which texts are sent. PostgreSQL's driver sends all."""
    if connections[using].vendor != "mysql":
        return "UTF8"
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT @@character_set_client")
        return str(cursor.fetchone()[0])


def _has(name: str, char: str) -> bool:
    if name in ("utf8mb3", "utf8"):
        return char < _BEYOND_UTF8MB3
    try:
        char.encode(_CODECS.get(name, name))
    except (UnicodeEncodeError, LookupError):
        return char.isascii()
    return True


def _texts(value: Any, is_deep: bool) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_deep and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key, is_deep)
            yield from _texts(item, is_deep)
    elif is_deep and isinstance(value, list):
        for item in value:
            yield from _texts(item, is_deep)
