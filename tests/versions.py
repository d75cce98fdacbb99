"""Write into tests/versions.md when a session of noxfile.py passed, and how many tests there were.

    python -m tests.versions "3.12, 6.0, highest, sqlite" report.xml
    python -m tests.versions api lowest

``make matrix`` has each of its sessions do so.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

PAGE = Path(__file__).with_suffix(".md").resolve()


def passed(report: Path) -> int:
    """How many tests passed, by the report of pytest's ``--junitxml``."""
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    return int(suite.attrib["tests"]) - sum(int(suite.attrib[name]) for name in ("errors", "failures", "skipped"))


def with_session(page: str, session: str, day: date, count: int) -> str:
    """The page with this row of its table changed. Raises ValueError if it has no such row."""
    return _with_row(page, session, f"| {session} | {day} | {count:,} |")


def with_extra(page: str, extra: str, dependencies: str, day: date) -> str:
    """The page with the cell of this extra, under the highest or the lowest versions, changed. Raises ValueError."""
    found = re.search(rf"^\| {re.escape(extra)} \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"tests/versions.md has no row of {extra}")
    highest, lowest = (f"{day}", found[2]) if dependencies == "highest" else (found[1], f"{day}")
    return _with_row(page, extra, f"| {extra} | {highest} | {lowest} |")


def _with_row(page: str, name: str, row: str) -> str:
    changed, count = re.subn(rf"^\| {re.escape(name)} \|.*$", lambda _: row, page, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"tests/versions.md has {count} rows of {name}")
    return changed


def main(session: str, source: str) -> None:
    page, today = PAGE.read_text(), datetime.now(UTC).date()
    if source in ("highest", "lowest"):
        PAGE.write_text(with_extra(page, session, source, today))
    else:
        PAGE.write_text(with_session(page, session, today, passed(Path(source))))


if __name__ == "__main__":
    main(*sys.argv[1:])
