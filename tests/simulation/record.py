"""The record of long runs: a line of JSON per part, and the table of ``docs/reliability.md`` that follows from it."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.simulation.faults import KINDS

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = Path(__file__).with_name("record.jsonl")
PAGE = ROOT / "docs" / "reliability.md"
#: The table stands between these lines of the page.
BEGIN, END = "<!-- make simulate-record -->", "<!-- end of the record -->"

#: How many schedules of one version are wanted, by Django's name of the database.
TARGETS = {"sqlite": 30_000, "postgresql": 5_000, "mysql": 5_000}
TITLES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MariaDB"}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a long run."""

    ended: str
    commit: str
    #: Git's hash of the package's files. Commits that do not change them continue the same sum.
    code: str
    database: str
    #: As of ``--seed``: the seed of each batch follows from it.
    seed: int
    batches: int
    schedules: int
    steps: int
    kills: int
    faults: int
    seconds: int
    #: The violated invariant, and what replays it; empty if there was none.
    violation: str = ""


def part(
    version: tuple[str, str],
    database: str,
    seed: int,
    batches: int,
    schedules: int,
    counts: Counter[str],
    seconds: float,
    violation: str,
) -> Part:
    """A part that ended now; ``version`` as it was when the part began."""
    return Part(
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=version[0],
        code=version[1],
        database=database,
        seed=seed,
        batches=batches,
        schedules=schedules,
        steps=counts["steps"],
        kills=counts["kills"],
        faults=sum(counts[f"{point} {kind}"] for point, kinds in KINDS.items() for kind in dict.fromkeys(kinds)),
        seconds=round(seconds),
        violation=violation,
    )


def version() -> tuple[str, str]:
    """The commit that is checked out, and Git's hash of its package."""
    return _git("rev-parse", "HEAD"), _git("rev-parse", "HEAD:payments_integration")


def uncommitted() -> str:
    """The changed files that a recorded run would not be able to name; empty if there are none."""
    return _git("status", "--porcelain", "--", "payments_integration", "tests", f":!{RECORD.relative_to(ROOT)}")


def parts(path: Path = RECORD) -> list[Part]:
    """All that were recorded, oldest first."""
    return [Part(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def next_seed(found: Iterable[Part]) -> int:
    """No two parts share a seed, on whichever database."""
    return max((each.seed for each in found), default=0) + 1


def left(found: Iterable[Part], database: str, code: str) -> int:
    """How many schedules of this version are still to be run on a database."""
    done = sum(each.schedules for each in found if (each.database, each.code) == (database, code))
    return max(0, TARGETS[database] - done)


def add(new: Part, path: Path = RECORD, page: Path = PAGE) -> None:
    """Append a part, and write the page's table again."""
    with path.open("a") as lines:
        lines.write(json.dumps(asdict(new)) + "\n")
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{table(parts(path))}\n\n{END}{rest.split(END)[1]}")


def table(found: Iterable[Part]) -> str:
    """A row per version and database, newest version last."""
    rows: dict[tuple[str, str], list[Part]] = {}
    for each in found:
        rows.setdefault((each.code, each.database), []).append(each)
    lines = [
        "| commit, database | seeds | schedules | steps | killed processes | faults | result |",
        "|---|---|---|---|---|---|---|",
    ]
    for same in rows.values():
        violations = sum(bool(each.violation) for each in same)
        cells = (
            f"`{same[-1].commit[:12]}`, {TITLES[same[-1].database]}",
            ", ".join(str(each.seed) for each in same),
            f"{sum(each.schedules for each in same):,} of {TARGETS[same[-1].database]:,}",
            f"{sum(each.steps for each in same):,}",
            f"{sum(each.kills for each in same):,}",
            f"{sum(each.faults for each in same):,}",
            f"{violations or 'no'} violation{'s' * (violations > 1)}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
