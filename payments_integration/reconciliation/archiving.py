"""Old events into files, and only then out of the database.

Like pruning it takes what is done and older than its age alone: never what is untold, parked or in quarantine. A file
is complete, on the disk and read back before a row of it is deleted. Whoever dies in between has written rows into
two files, and lost none.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from django.db import router
from django.utils import timezone

from payments_integration import conf
from payments_integration.models import Event
from payments_integration.reconciliation.pruning import BATCH, outlived, pages
from payments_integration.transactions import Turns, deleted

#: So many events make a file.
FILE_ROWS = 50_000


class ArchiveError(Exception):
    """A file could not be read back as it was written: nothing of it is deleted."""


@dataclass(frozen=True, slots=True)
class Archived:
    """One file. ``deleted`` is less than ``written`` where a row was replayed or pruned meanwhile."""

    path: Path
    written: int
    deleted: int


def archive(folder: Path, *, days: int, account: str | None = None) -> Iterator[Archived]:
    """Move done events created more than ``days`` ago into files of this folder, one after the other, oldest first.

    A file is gzipped JSON, an event per line with every column; ``body`` holds the exact bytes as Latin-1, so that
    ``line["body"].encode("latin-1")`` gives them back. Can be interrupted and repeated.
    """
    if days < conf.MIN_EVENT_DAYS:
        raise ValueError(f"events must be kept for {conf.MIN_EVENT_DAYS} days")
    lines = _lines(account, days)
    name = f"events-{timezone.now():%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    number = 0
    while first := next(lines, None):
        number += 1
        path = folder / f"{name}-{number:04d}.jsonl.gz"
        written = _write(path, first, islice(lines, FILE_ROWS - 1))
        ids = _read_back(path.with_suffix(".part"), written)
        _settle(path)
        yield Archived(path, written, _delete(ids, account, days))


def _lines(account: str | None, days: int) -> Iterator[dict[str, Any]]:
    """The rows, a page in memory at a time, and no cursor of the database's held open."""
    fields = [field.attname for field in Event._meta.concrete_fields]
    rows = outlived(account, days)
    for keys in pages(rows, "created_at"):
        for values in rows.filter(pk__in=keys).order_by("created_at", "pk").values(*fields):
            yield {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    # Not every driver gives bytes.
    return bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else value


def _write(path: Path, first: dict[str, Any], others: Iterable[dict[str, Any]]) -> int:
    """Write and sync what is to become ``path``; returns how many rows. It holds payers: its owner alone reads it."""
    count = 0
    descriptor = os.open(path.with_suffix(".part"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as raw:
        with gzip.open(raw, "wt", encoding="ascii", newline="\n") as packed:
            for line in chain((first,), others):
                packed.write(json.dumps(line, separators=(",", ":")) + "\n")
                count += 1
        raw.flush()
        os.fsync(raw.fileno())
    return count


def _read_back(path: Path, written: int) -> list[str]:
    """The ids that stand in the file, which gzip's checksum vouches for."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as packed:
            ids = [json.loads(line)["id"] for line in packed]
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise ArchiveError(f"{path} cannot be read back; nothing of it was deleted") from error
    if len(ids) != written:
        raise ArchiveError(f"{path} has {len(ids)} events of {written}; nothing of it was deleted")
    return ids


def _settle(path: Path) -> None:
    """Give the file its name, for good."""
    path.with_suffix(".part").rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _delete(ids: list[str], account: str | None, days: int) -> int:
    """Delete these rows as far as they may still go: one that is being told again stays."""
    turns, count = Turns(router.db_for_write(Event)), 0
    for start in range(0, len(ids), BATCH):
        count += deleted(outlived(account, days).filter(pk__in=ids[start : start + BATCH]))
        turns.give()
    return count
