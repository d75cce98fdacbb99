"""The files of ``payments_archive`` lose an erased payer's data, each as a whole or not at all."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from payments_integration import archives, erasure, inbox
from payments_integration.archives import ArchiveError
from payments_integration.erasure import Selection
from payments_integration.models import Erasure, Event, Payment
from payments_integration.reconciliation import archive, retention
from tests import factories
from tests.fake_provider import PAYER

pytestmark = pytest.mark.django_db

ANA = Selection.of(emails=("ana@example.com",))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, woken: list[str]) -> Path:
    """Two files: payments of Ana and of Ben, an event each in both, and a refund of Ana's."""
    monkeypatch.setattr(retention, "FILE_ROWS", 3)
    for number, (name, payer) in enumerate((("ana", PAYER), ("ben", {"name": "Ben"}))):
        for step, status in enumerate(("created", "processing")):
            data = factories.payment(id=f"pay_{name}", status=status, payer=payer)
            inbox.receive("default", factories.body(factories.event(data, seconds=2 * step + number)))
    refund = factories.event(factories.refund(id="ref_ana", payment_id="pay_ana"), seconds=9)
    inbox.receive("default", factories.body(refund))
    inbox.process()
    for event in Event.objects.all():
        event.created_at, event.received_at = (at - timedelta(days=50) for at in (event.created_at, event.received_at))
        event.error = "Traceback: Ana Rojas" if event.object_id == "pay_ana" else ""
        event.save()
    assert [done.deleted for done in archive(tmp_path, days=40)] == [3, 2]
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    return [line for path in archives.files(folder) for line in archives.read(path)]


def erase(folder: Path) -> tuple[int, int]:
    with archives.locked(folder, exclusive=True):
        erasure.erase(erasure.select(ANA, archive=folder), actor="a test")
        done = erasure.erase_archive(folder)
    return done.events, done.files_with_data


def is_erased(line: dict[str, Any]) -> bool:
    return line["body"] is None and "Ana" not in line["error"]


@pytest.mark.case(85)
def test_bodies_and_tracebacks_go_and_all_else_stays(folder: Path) -> None:
    before = lines(folder)
    for path in archives.files(folder):
        path.chmod(0o640)
    assert erase(folder) == (3, 2)
    for was, line in zip(before, lines(folder), strict=True):
        if line["object_id"] == "pay_ben":
            assert line == was
        else:
            assert is_erased(line)
            assert {**line, "body": was["body"], "error": was["error"]} == was
    assert all(b"ana@example.com" not in gzip.decompress(path.read_bytes()) for path in folder.iterdir())
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o640, 0o640]


def test_a_second_run_rewrites_nothing(folder: Path) -> None:
    erase(folder)
    before = [(path, path.stat().st_ino) for path in archives.files(folder)]
    assert erase(folder) == (0, 0)
    assert [(path, path.stat().st_ino) for path in archives.files(folder)] == before


def test_an_object_whose_row_shows_the_payer_no_more_is_found_in_a_file(folder: Path) -> None:
    """The payer of a payment was corrected; the row is erased with the payment's old events."""
    Payment.objects.filter(pk="pay_ana").update(payer={}, payer_email="", payer_document="")
    assert erase(folder) == (3, 2)
    assert set(Erasure.objects.values_list("object_id", flat=True)) == {"pay_ana", "ref_ana"}


def test_objects_that_were_erased_before_are_erased_in_files(folder: Path) -> None:
    """A file was on a disk that was not there, or the process died between the table and the file."""
    erasure.erase(erasure.select(Selection.of(ids=("pay_ana",))), actor="a test")
    assert erasure.erase_archive(folder, dry_run=True).events == 3
    assert erasure.erase_archive(folder).events == 3
    assert erasure.erase_archive(folder).events == 0


def test_a_dry_run_only_counts(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    found = erasure.select(ANA, archive=folder)
    done = erasure.erase_archive(folder, keys=found.keys, dry_run=True)
    assert (done.files, done.files_with_data, done.events) == (2, 2, 3)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_other_accounts_keep_their_events(folder: Path) -> None:
    Erasure.objects.create(account="second", object_kind="payment", object_id="pay_ana")
    assert erasure.erase_archive(folder).events == 0
    found = erasure.select(ANA, "second", archive=folder)
    assert not found.keys
    erasure.erase(erasure.select(ANA), actor="a test")
    assert erasure.erase_archive(folder, "second").events == 0


class Killed(BaseException):
    """The process dies here."""


#: What happens to a file, in this order.
STEPS: list[tuple[Any, str]] = [
    (os, "open"), (gzip, "open"), (os, "fsync"), (archives, "read_back"), (os, "chmod"), (Path, "replace"),
    (archives, "commit"),
]  # fmt: skip


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("module", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_kill_at_any_point_leaves_whole_files(
    module: Any, name: str, is_after: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is the old one or the new one, and the next run erases what is left."""
    before = lines(folder)
    erasure.erase(erasure.select(ANA), actor="a test")
    step: Callable[..., Any] = getattr(module, name)

    def dies(*args: Any, **kwargs: Any) -> Any:
        if (module, name) == (gzip, "open") and args[1] != "wt":
            return step(*args, **kwargs)
        if is_after:
            step(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(module, name, dies)
        with pytest.raises(Killed):
            erasure.erase_archive(folder)
    for was, line in zip(before, lines(folder), strict=True):
        assert line == was or is_erased(line)
    assert {path.name for path in folder.glob("*.gz")} == {path.name for path in archives.files(folder)}
    assert erasure.erase_archive(folder).events > 0 or all(
        is_erased(line) for line in lines(folder) if line["object_id"] != "pay_ben"
    )
    assert [line["id"] for line in lines(folder) if not is_erased(line)] == [
        line["id"] for line in before if line["object_id"] == "pay_ben"
    ]
    assert not archives.unfinished(folder)


def test_what_a_killed_archive_has_left_is_removed(folder: Path) -> None:
    """It is a copy: its events are in the table still."""
    part = folder / "events-20260131T020000Z-5e1f0c9a-0001.jsonl.part"
    part.write_bytes(b"half")
    erasure.erase_archive(folder, dry_run=True)
    assert part.exists()
    erasure.erase_archive(folder)
    assert not part.exists()


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_erased(folder: Path) -> None:
    first, second = archives.files(folder)
    first.write_bytes(first.read_bytes()[:-20])
    assert erase(folder) == (1, 1)
    assert erasure.erase_archive(folder).unreadable == [first]
    assert all(is_erased(line) for line in archives.read(second) if line["object_id"] != "pay_ben")


def test_a_new_version_that_cannot_be_read_back_replaces_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    write = archives.write
    monkeypatch.setattr(archives, "write", lambda path, rows: write(path, rows) + 1)
    with pytest.raises(ArchiveError, match="has 3 events of 4"):
        erase(folder)
    assert {path: path.read_bytes() for path in archives.files(folder)} == before


def test_a_link_is_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The data would stay in the file, if the link were replaced."""
    path = archives.files(folder)[0]
    target = path.rename(tmp_path_factory.mktemp("disk") / path.name)
    path.symlink_to(target)
    target.with_suffix(".part").write_text("of a process that was killed")
    erase(folder)
    assert path.is_symlink()
    assert list(target.parent.iterdir()) == [target]
    assert all(is_erased(line) for line in archives.read(target) if line["object_id"] != "pay_ben")


def test_archiving_and_erasing_wait_for_each_other(folder: Path) -> None:
    """An archive that has read a row before it was erased would write a file behind the erasure's back."""
    Event.objects.all().delete()
    inbox.receive("default", factories.body(factories.event(factories.payment(id="pay_old"), seconds=0)))
    inbox.process()
    Event.objects.update(created_at=timezone.now() - timedelta(days=60), received_at=timezone.now() - timedelta(60))
    with archives.locked(folder, exclusive=True), pytest.raises(ArchiveError, match="is at work in"):
        next(archive(folder, days=40))
    running = archive(folder, days=40)
    next(running)
    with pytest.raises(ArchiveError, match="is at work in"), archives.locked(folder, exclusive=True):
        pass
    assert list(running) == []
    with archives.locked(folder, exclusive=True):
        pass
