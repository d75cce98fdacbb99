"""Run schedules and report.

    python -m tests.simulation --schedules 10000 --seed 1

runs that many in batches, each with a seed of its own, over both cores; the database is a SQLite file in memory unless
``--database`` or ``TEST_DATABASE_URL`` names a server. A violation prints its schedule, shrunk, and the command that
replays it; then the exit code is 1.

    python -m tests.simulation --record --minutes 85

runs one part of a long run, with a seed that no part had, and adds it to ``record.jsonl`` and ``docs/reliability.md``.
It ends after that time, or when the parts of this version have reached the target; a part that is stopped before
(Ctrl-C, SIGTERM) is recorded as far as it came.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from queue import Empty, Queue
from threading import Thread
from typing import Any

import environ

from tests.simulation import record
from tests.simulation.faults import KINDS

#: How many of the faults at boundaries hit a POST, and what else happens.
OTHERS = (
    "faults of a POST",
    "delivery drop",
    "delivery twice",
    "delivery vanish",
    "broker wiped",
    "clock jumps",
    "long gap",
    "clock set wrong",
    "key of another project",
    "backups restored",
    "erasures",
)

#: How long the schedules in hand may go on after a stop.
STOP_SECONDS = 60.0
#: After how many schedules a line says how far it is.
PROGRESS = 500


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    # A stop of the run is a stop of its processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.database:
        os.environ["TEST_DATABASE_URL"] = options.database
    begun = time.monotonic()
    if options.record:
        if not _next_part(options):
            return 0
    elif options.replay is None:
        options.batch = min(options.batch, -(-options.schedules // options.jobs))
    seeds = [options.seed * 1_000_000 + number for number in range(-(-options.schedules // options.batch))]
    if options.replay is not None:
        seeds = [options.replay]
    counts: Counter[str] = Counter()
    batches, schedules, vendor = 0, 0, ""
    failed: dict[str, Any] | None = None
    try:
        for found in _results(options, seeds):
            if options.record and found["violation"].startswith("Traceback"):
                # An error of the simulation's own shows nothing about the app: the batch does not count.
                failed = found
                break
            counts.update(found["counts"])
            vendor = found["database"]
            batches += 1
            schedules += found["schedules"]
            if found["violation"]:
                failed = found
                break
            if schedules // PROGRESS > (schedules - found["schedules"]) // PROGRESS:
                # A long run that is ended from outside has shown what it did.
                say(f"{schedules} schedules in {time.monotonic() - begun:.0f} s, no violation")
    finally:
        if options.record and batches:
            is_violated = failed is not None and not failed["violation"].startswith("Traceback")
            violation = f"{failed['violation']} (--replay {failed['seed']})" if failed and is_violated else ""
            seconds = time.monotonic() - begun
            record.add(
                record.part(options.version, vendor, options.seed, batches, schedules, counts, seconds, violation)
            )
            say(f"Recorded: seed {options.seed}, {schedules} schedules in {seconds:.0f} s")
    if failed is not None:
        sizes = f"--batch {options.batch} --steps {options.steps}"
        say("\n".join(failed["trace"]))
        say(f"\nVIOLATION of: {failed['violation']}")
        say(f"Replay: python -m tests.simulation --replay {failed['seed']} {sizes}\n")
    _show(counts, schedules, time.monotonic() - begun, vendor)
    say(f"violations: {int(failed is not None)}")
    return int(failed is not None)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--schedules", type=int, default=1000, help="how many to run")
    parser.add_argument("--seed", type=int, default=1, help="the first batch's; the others' follow from it")
    parser.add_argument("--batch", type=int, default=50, help="schedules per batch, at most")
    parser.add_argument("--steps", type=int, default=30, help="steps of a schedule at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--database", default="", help="the URL of a database server")
    parser.add_argument("--replay", type=int, help="run the batch with this seed again, and shrink what it finds")
    parser.add_argument("--shrink", type=int, default=60, help="seconds spent on shrinking at most; 0: not at all")
    parser.add_argument("--record", action="store_true", help="run the next part of the long run, and record it")
    parser.add_argument("--minutes", type=float, default=85, help="how long a part takes at most")
    return parser.parse_args(arguments)


def _next_part(options: argparse.Namespace) -> bool:
    """Choose the seed and size of the next part; whether there is anything left to run."""
    if changed := record.uncommitted():
        raise SystemExit(f"A recorded run names its commit. Commit these changes first:\n{changed}")
    known = record.parts()
    engine = environ.Env().db("TEST_DATABASE_URL", default="sqlite://")["ENGINE"].rpartition(".")[2]
    options.version = record.version()
    options.seed = record.next_seed(known)
    options.schedules = record.left(known, engine.removesuffix("3"), options.version[1])
    say(f"{options.schedules} schedules of this version are left, seed {options.seed}")
    return bool(options.schedules)


def _results(options: argparse.Namespace, seeds: list[int]) -> Iterator[dict[str, Any]]:
    """The findings of all batches, as they come; what still runs is ended with the iterator, or when a part's time is
    over.
    """
    results: Queue[str | None] = Queue()
    shares = [seeds[number :: options.jobs] for number in range(min(options.jobs, len(seeds)))]
    workers = [_worker(options, share) for share in shares]
    readers = [Thread(target=_read, args=(worker, results), daemon=True) for worker in workers]
    for reader in readers:
        reader.start()
    left = len(workers)
    end = time.monotonic() + options.minutes * 60
    try:
        while left:
            try:
                line = results.get(timeout=max(0.0, end - time.monotonic()) if options.record else None)
            except Empty:
                return
            if line is None:
                left -= 1
            else:
                yield json.loads(line)
        if any(worker.wait() for worker in workers):
            raise SystemExit("a process of the simulation failed")
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            try:
                worker.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _worker(options: argparse.Namespace, seeds: list[int]) -> subprocess.Popen[str]:
    work = {"seeds": seeds, "batch": options.batch, "steps": options.steps, "shrink": options.shrink}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.simulation.process", json.dumps(work)],
        stdout=subprocess.PIPE,
        # Sets of text are walked in the same order then, in every process.
        env={**os.environ, "PYTHONHASHSEED": "0", "DJANGO_SETTINGS_MODULE": "tests.settings"},
        text=True,
    )


def _read(worker: subprocess.Popen[str], results: Queue[str | None]) -> None:
    assert worker.stdout is not None
    with worker.stdout as lines:
        for line in lines:
            results.put(line)
    results.put(None)


def _show(counts: Counter[str], schedules: int, seconds: float, vendor: str) -> None:
    """What was run, and that every fault was met at every boundary."""
    say(f"schedules: {schedules} on {vendor} in {seconds:.0f} s")
    say(f"steps: {counts['steps']}, processes killed: {counts['kills']}")
    say(f"{'boundary':12}{'passed':>9}  faults")
    for point, kinds in KINDS.items():
        met = ", ".join(f"{kind} {counts[f'{point} {kind}']}" for kind in dict.fromkeys(kinds))
        say(f"{point:12}{counts[f'passed {point}']:>9}  {met}")
    say("others: " + ", ".join(f"{name} {counts[name]}" for name in OTHERS))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
