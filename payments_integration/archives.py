"""The files of ``payments_archive``: a crash leaves each of them whole, and one command at a time rewrites them.

A file is gzipped JSON, an event per line with every column; ``body`` holds the exact bytes as Latin-1, so that
``line["body"].encode("latin-1")`` restores them.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SUFFIX = ".jsonl.gz"
#: Replaces the last part of the name while a file is written.
_PART = ".part"


class ArchiveError(Exception):
    """A file could not be read back as it was written, or a folder is in use; the message names it."""


@contextmanager
def locked(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Keep other commands of this machine from rewriting the folder's files; ``exclusive``: also from adding one.

    The lock ends with the process, also if that is killed. Other machines that share the folder do not see it.
    Raises ArchiveError if another process has it.
    """
    import fcntl  # noqa: PLC0415  (Windows has no such module, and needs none to do without archives)

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"payments_archive or payments_erase is at work in {folder}; try again later"
            raise ArchiveError(message) from error
        yield
    finally:
        os.close(descriptor)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"events-*{SUFFIX}"))


def unfinished(folder: Path) -> list[Path]:
    """What killed processes have left. Each is a copy: rows and files are removed after a file has its final name."""
    return sorted(folder.glob(f"events-*{Path(SUFFIX).with_suffix(_PART)}"))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines. gzip verifies its checksum at the end. Raises ArchiveError."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as packed:
            for line in packed:
                found = json.loads(line)
                yield {**found, "id": found["id"]}
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"{path} cannot be read") from error


def write(path: Path, lines: Iterable[dict[str, Any]]) -> int:
    """Write the lines beside ``path`` and sync them; returns how many. ``commit`` gives the file its name.

    A file holds personal data, so only its owner can read it.
    """
    count = 0
    descriptor = os.open(path.with_suffix(_PART), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as raw:
        with gzip.open(raw, "wt", encoding="ascii", newline="\n") as packed:
            for line in lines:
                packed.write(json.dumps(line, separators=(",", ":")) + "\n")
                count += 1
        raw.flush()
        os.fsync(raw.fileno())
    return count


def read_back(path: Path, written: int) -> list[str]:
    """The ids in the file that ``write`` has written. Raises ArchiveError."""
    part = path.with_suffix(_PART)
    ids = [line["id"] for line in read(part)]
    if len(ids) != written:
        raise ArchiveError(f"{part} has {len(ids)} events of {written}")
    return ids


def commit(path: Path) -> None:
    """Give the file its final name, durably; it replaces the file that has the name, with its mode and its owner."""
    part = path.with_suffix(_PART)
    if path.exists():
        before = path.stat()
        os.chmod(part, before.st_mode & 0o7777)
        if (before.st_uid, before.st_gid) != (part.stat().st_uid, part.stat().st_gid):
            os.chown(part, before.st_uid, before.st_gid)
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
