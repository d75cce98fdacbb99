"""``payments_archive`` writes complete files and deletes only events that are in them."""

from __future__ import annotations

import gzip
import io
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration import archives, inbox
from payments_integration.models import Event, EventSource, EventState
from payments_integration.reconciliation import retention
from tests import factories
from tests.factories import rows
from tests.unit.management.test_prune import many

pytestmark = pytest.mark.django_db


def run(folder: Path, *words: str, days: int = 60) -> str:
    out = io.StringIO()
    call_command("payments_archive", str(folder), "--older-than", str(days), *words, stdout=out)
    return out.getvalue()


def ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)


def event(days: float, **fields: Any) -> Event:
    return rows.event(**{"created_at": ago(days), "received_at": ago(days), **fields})


def lines(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as packed:
            found += [json.loads(line) for line in packed]
    return found


def test_an_archive_file_holds_every_column_and_the_exact_bytes(tmp_path: Path) -> None:
    young = event(59)
    old = event(61, body=bytes(range(256)), dispatched_at=ago(61), error="")
    blank = event(62, body=None)
    before = {row.pk: row for row in Event.objects.filter(pk__in=(old.pk, blank.pk))}
    out = run(tmp_path)
    assert out.endswith("2 events written, 2 deleted\n2 events archived\n")
    assert [row.pk for row in Event.objects.all()] == [young.pk]
    found = lines(tmp_path)
    assert [line["id"] for line in found] == [blank.pk, old.pk]
    for line in found:
        row = before[line["id"]]
        again = Event(**{**line, "body": None if line["body"] is None else line["body"].encode("latin-1")})
        for field in Event._meta.concrete_fields:
            value = field.to_python(getattr(again, field.attname))
            kept = getattr(row, field.attname)
            assert value == (bytes(kept) if field.name == "body" and kept is not None else kept), field.name
    assert run(tmp_path) == "0 events archived\n"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "state", [EventState.PENDING, EventState.HELD, EventState.APPLIED, EventState.PARKED, EventState.QUARANTINED]
)
def test_only_done_events_are_archived(state: str, tmp_path: Path) -> None:
    row = event(5000, state=state)
    assert run(tmp_path) == "0 events archived\n"
    assert Event.objects.get() == row


@pytest.mark.promise(2)
def test_an_event_that_the_provider_may_deliver_again_stays_known(tmp_path: Path) -> None:
    body = factories.body(factories.life()[0])
    inbox.receive("default", body)
    inbox.process()
    Event.objects.update(created_at=ago(36.9), received_at=ago(36.9))
    run(tmp_path, days=37)
    Event.objects.update(created_at=ago(3000))  # it was received late, so the provider may still deliver it
    run(tmp_path, days=37)
    assert inbox.receive("default", body) is inbox.Receipt.KNOWN
    with pytest.raises(CommandError, match="37 days") as refused:
        run(tmp_path, days=36)
    assert refused.value.returncode == 2
    with pytest.raises(ValueError, match="37 days"):
        next(retention.archive(tmp_path, days=36))


def test_a_large_archive_is_split_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FILE_ROWS", 700)
    many(1600, 61)
    with CaptureQueriesContext(connection) as queries:
        out = run(tmp_path)
    assert [line.rpartition(": ")[2] for line in out.splitlines()] == [
        "700 events written, 700 deleted",
        "700 events written, 700 deleted",
        "200 events written, 200 deleted",
        "1600 events archived",
    ]
    assert [line["id"] for line in lines(tmp_path)] == [f"evt_61_{index:05d}" for index in range(1600)]
    assert not Event.objects.exists()
    # Four pages and an empty one, each with keys and rows; deletions of at most 500 events.
    assert len([query for query in queries if "payments_integration_event" in query["sql"]]) <= 9 + 5 * 3


def test_archive_of_one_account_leaves_the_others(tmp_path: Path) -> None:
    event(500)
    other = event(500, account="second")
    assert "1 events archived" in run(tmp_path, "--account", "default")
    assert Event.objects.get() == other
    with pytest.raises(CommandError, match="no account"):
        run(tmp_path, "--account", "missing")


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    """The folder may be on a disk that is not mounted."""
    event(500)
    with pytest.raises(CommandError, match="not a folder") as refused:
        run(tmp_path / "mnt")
    assert refused.value.returncode == 2
    assert Event.objects.exists()


def test_no_event_is_deleted_if_its_file_cannot_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(10, 61)
    write = archives.write

    def torn(path: Path, *rows: Any) -> int:
        written = write(path, *rows)
        part = path.with_suffix(".part")
        part.write_bytes(part.read_bytes()[:-20])
        return written

    def short(path: Path, *rows: Any) -> int:
        return write(path, *rows) + 1

    for broken, says in ((torn, "cannot be read"), (short, "10 events of 11")):
        monkeypatch.setattr(archives, "write", broken)
        with pytest.raises(CommandError, match=says):
            run(tmp_path)
    assert Event.objects.count() == 10
    assert not list(tmp_path.glob("*.jsonl.gz"))


def test_a_crash_before_the_deletion_loses_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run writes the events to another file."""
    many(10, 61)

    def dies(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(retention, "_delete", dies)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    assert Event.objects.count() == 10
    run(tmp_path)
    assert not Event.objects.exists()
    assert len(list(tmp_path.glob("*.jsonl.gz"))) == 2
    assert len(lines(tmp_path)) == 20
    assert len({line["id"] for line in lines(tmp_path)}) == 10


def test_an_event_that_is_replayed_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(3, 61)
    commit = archives.commit

    def replayed(path: Path) -> None:
        inbox.replay(Event.objects.get(pk="evt_61_00001"))
        commit(path)

    monkeypatch.setattr(archives, "commit", replayed)
    assert "3 events written, 2 deleted" in run(tmp_path)
    assert Event.objects.get().state == EventState.APPLIED


def test_an_archive_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    event(61, source=EventSource.WEBHOOK)
    run(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
