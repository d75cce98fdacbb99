"""Erase objects in the files of ``payments_archive``, each file as a whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from payments_integration import archives, projection
from payments_integration.erasure.removal import REMOVED
from payments_integration.models import ObjectKey

#: Lines per statement that asks which objects are erased.
_PAGE = 500


@dataclass(slots=True)
class InArchive:
    """What a folder holds, or held."""

    files: int = 0
    #: Files and events in them with data to erase.
    files_with_data: int = 0
    events: int = 0
    #: Files that cannot be read; they may hold the data.
    unreadable: list[Path] = field(default_factory=list)


def erase_archive(
    folder: Path, account: str | None = None, *, keys: Collection[ObjectKey] = (), dry_run: bool = False
) -> InArchive:
    """Blank the archived events of all objects that were ever erased, and of ``keys``; returns how many.

    As in the table, an event loses its body and its traceback. Call it after ``erase``, in ``archives.locked``. It can
    be interrupted and repeated: a file is replaced when its new version is on the disk and read back. ``dry_run``:
    only count; it needs no lock. Raises OSError, and ArchiveError for a file that cannot be read back.
    """
    done = InArchive()
    wanted = frozenset(keys)
    if not dry_run:
        for path in archives.unfinished(folder):
            path.unlink()
    for path in archives.files(folder):
        done.files += 1
        try:
            events = sum(is_erased for _, is_erased in _lines(path, account, wanted))
        except archives.ArchiveError:
            done.unreadable.append(path)
            continue
        if events:
            done.files_with_data += 1
            done.events += events
            if not dry_run:
                _rewrite(path, account, wanted)
    return done


def _rewrite(path: Path, account: str | None, keys: Collection[ObjectKey]) -> None:
    path = path.resolve()  # the file that holds the data, not a link to it
    for part in archives.unfinished(path.parent):
        part.unlink()  # what a killed process has left there
    written = archives.write(path, (line for line, _ in _lines(path, account, keys)))
    archives.read_back(path, written)
    archives.commit(path)


def _lines(path: Path, account: str | None, keys: Collection[ObjectKey]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each line as it is to be, and whether it is another one than before."""
    lines = archives.read(path)
    while page := list(islice(lines, _PAGE)):
        with_data = [line for line in page if _holds_data(line) and account in (None, line["account"])]
        objects = {_key(line) for line in with_data}
        erased = objects.intersection(keys) | projection.erased(objects)
        for line in page:
            if _holds_data(line) and _key(line) in erased:
                yield {**line, "body": None, "error": REMOVED if line["error"] else ""}, True
            else:
                yield line, False


def _holds_data(line: dict[str, Any]) -> bool:
    return line["body"] is not None or line["error"] not in ("", REMOVED)


def _key(line: dict[str, Any]) -> ObjectKey:
    return (line["account"], line["object_kind"], line["object_id"])
