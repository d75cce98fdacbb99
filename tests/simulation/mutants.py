"""Deliberate mistakes in the app's rules, and whether the simulation finds each of them.

    python -m tests.simulation.mutants

A mutant is a copy of the tree with some text replaced. Each runs schedules until one violates an invariant; one that
survives all of them means that the simulation is blind for a rule, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.rules import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent.parent
COPIED = ("payments_integration", "example_project", "tests")

_RAN = re.compile(r"^schedules: (\d+) ", re.MULTILINE)
#: An error of the simulation's own catches nothing.
_VIOLATED = re.compile(r"^VIOLATION of: (?!Traceback)([^:\n]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the simulation made of a mutant: after how many schedules, by which invariant; "" where it survived."""

    mutant: Mutant
    schedules: int
    invariant: str
    seconds: float
    output: str


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("--schedules", type=int, default=1000, help="how many each mutant may survive")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*", help="only those whose name has one of these texts")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not options.names or any(name in mutant.name for name in options.names)]
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(run, mutant, options.schedules, options.seed) for mutant in chosen]
        for ended in as_completed(runs):
            outcome = ended.result()
            survivors += not outcome.invariant
            say(
                f"{outcome.mutant.name:58} {'caught by' if outcome.invariant else 'SURVIVED'} {outcome.invariant}"
                f" after {outcome.schedules} schedules, {outcome.seconds:.0f} s"
            )
            if not outcome.invariant:
                say(outcome.output[-2000:])
    say(f"{len(chosen)} mutants, {survivors} survived")
    return int(survivors > 0)


def run(mutant: Mutant, schedules: int, seed: int) -> Outcome:
    """Simulate one mutant in a copy of the tree."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        for name in COPIED:
            shutil.copytree(ROOT / name, Path(directory) / name, ignore=shutil.ignore_patterns("__pycache__"))
        apply(mutant, Path(directory))
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "tests.simulation", "--jobs", "1", "--shrink", "0", "--batch", "25"),
                *("--schedules", str(schedules), "--seed", str(seed)),
            ],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
    ran, violated = _RAN.search(ended.stdout), _VIOLATED.search(ended.stdout)
    return Outcome(
        mutant,
        int(ran[1]) + bool(violated) if ran else 0,
        violated[1] if violated else "",
        time.monotonic() - begun,
        ended.stdout + ended.stderr,
    )


def apply(mutant: Mutant, root: Path) -> None:
    """Replace the texts, each of which must be there exactly once."""
    for path, old, new in mutant.changes:
        file = root / "payments_integration" / path
        text = file.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{mutant.name}: {text.count(old)} times in {path}: {old}")
        file.write_text(text.replace(old, new))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
