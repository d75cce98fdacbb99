"""Bound the size of statements.

MariaDB and MySQL end the connection at a statement above ``max_allowed_packet``, and no error says which row was too
large. So statements for many rows are bounded by bytes, and a row that is too large is refused before it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from django.db import DataError, connections, router
from django.db.models import Model

T = TypeVar("T")

#: The most bytes of a statement for many rows, on every database: more takes memory and saves no time.
MOST_BYTES = 8 * 2**20
#: For names, and for values that are neither text nor bytes.
_PER_STATEMENT, _PER_VALUE = 4096, 40
#: Fits into any packet, so a usual row asks for nothing.
_SURELY_SMALL = 64 * 1024
#: Bytes that are written as two.
_ESCAPED = tuple(bytes([byte]) for byte in b"\0\n\r\x1a\"'\\")


def has_packets(using: str) -> bool:
    return connections[using].vendor == "mysql"


def packet(using: str) -> int | None:
    """Return ``max_allowed_packet`` in bytes, read once per connection; None on databases without it."""
    if not has_packets(using):
        return None
    connection: Any = connections[using]
    known = vars(connection).get("_payments_packet")
    if known is None or known[0] is not connection.connection or connection.connection is None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            known = (connection.connection, int(cursor.fetchone()[0]))
        vars(connection)["_payments_packet"] = known
    return int(known[1])


def portions(
    items: Sequence[T], *, using: str, values: Callable[[T], Sequence[Any]] | None = None, most: int | None = None
) -> list[list[T]]:
    """Return the rows in portions of at most ``most`` rows, each for one statement of half a packet at most.

    ``values`` returns what a statement contains of an item that is no row. Raises DataError for a row that is too
    large alone.
    """
    packet_size = packet(using)
    limit = MOST_BYTES if packet_size is None else min(MOST_BYTES, packet_size // 2)
    of_item = values or _of_row
    found: list[list[T]] = []
    size = 0
    for item in items:
        needed = sum(map(_at_most, of_item(item)))
        if needed > limit:
            refuse_too_large(of_item(item), using=using)
        if not found or size + needed > limit or len(found[-1]) == most:
            found.append([])
            size = 0
        found[-1].append(item)
        size += needed
    return found


def in_parts(items: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Return slices of at most ``size`` items, such as keys for one statement."""
    return (items[start : start + size] for start in range(0, len(items), size))


def refuse_too_large(values: Sequence[Any], *, using: str) -> None:
    """Raise DataError if a statement with these values would be above ``max_allowed_packet``."""
    if sum(map(_at_most, values)) <= _SURELY_SMALL:
        return
    most = packet(using)
    if most is not None and (size := _PER_STATEMENT + sum(map(_exactly, values))) > most:
        raise DataError(f"a row takes a statement of {size} bytes, and max_allowed_packet is {most}")


def refuse_too_large_row(row: Model) -> None:
    """Raise DataError if the statement that writes this row would be above ``max_allowed_packet``."""
    using = router.db_for_write(type(row))
    if has_packets(using):
        refuse_too_large(_of_row(row), using=using)


def _of_row(row: Any) -> list[Any]:
    return [getattr(row, field.attname) for field in row._meta.concrete_fields]


def _at_most(value: Any) -> int:
    return _PER_VALUE + 2 * len(_bytes(value))


def _exactly(value: Any) -> int:
    data = _bytes(value)
    return _PER_VALUE + len(data) + sum(map(data.count, _ESCAPED))


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    # As a JSONField writes it: ASCII, so an emoji takes twelve bytes.
    return json.dumps(value, default=str).encode() if isinstance(value, dict | list) else b""
