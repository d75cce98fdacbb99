"""``python -m tests.fuzz --target signature|event|answer|delivery --seconds 60 [--seed 1] [--engine random]``

Exit code 1 where something was found; it is printed as a test to keep. Without atheris the same mutations run at
random.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:
    from tests.fuzz.findings import Finding
    from tests.fuzz.targets import Target

NAMES = ("signature", "event", "answer", "delivery")
MAX_BYTES = 16 * 1024
#: libFuzzer's own: one input may take so many seconds, the process so many megabytes.
INPUT_SECONDS = 10
MEGABYTES = 2048
#: Extra seconds to begin and to end.
GRACE_SECONDS = 60
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*([0-9]+)")
_COVERED = re.compile(r"cov: ([0-9]+)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz what reads foreign bytes.")
    parser.add_argument("--target", choices=[*NAMES, "all"], default="all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same choices")
    parser.add_argument("--engine", choices=["atheris", "random"], default="atheris")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    guided = options.engine == "atheris" and importlib.util.find_spec("atheris") is not None
    if not guided and options.engine == "atheris":
        print("atheris is not installed (it may not be there yet for this Python): random mutations instead")
    django.setup()
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415  (needs the settings)

    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    failed = False
    for name in NAMES if options.target == "all" else [options.target]:
        target = TARGETS[name]
        target.prepare()
        run = _guided if guided else _random
        began = time.monotonic()
        finding, what = run(target, options.seconds, options.seed, folder)
        print(f"{name}: {what}, {time.monotonic() - began:.0f} s, {'FAILED' if finding else 'nothing found'}")
        if finding is not None:
            failed = True
            print(f"\n{finding.error}\n\nThe input is {finding.save(folder)}. As a test:\n\n{finding.as_test()}")
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


def _random(target: Target, seconds: int, seed: int, folder: Path) -> tuple[Finding | None, str]:
    from tests.fuzz.findings import examine, failure  # noqa: PLC0415

    random, pool, runs = Random(seed), target.seeds(), 0
    end = time.monotonic() + seconds
    candidates = list(pool)
    while time.monotonic() < end:
        data = candidates.pop() if candidates else target.mutate(random.choice(pool), random)[:MAX_BYTES]
        runs += 1
        if failure(target.check, data) is not None:
            return examine(target.name, target.check, data), f"{runs:,} random inputs"
    return None, f"{runs:,} random inputs"


def _guided(target: Target, seconds: int, seed: int, folder: Path) -> tuple[Finding | None, str]:
    from tests.fuzz.findings import Finding, examine  # noqa: PLC0415

    corpus = folder / f"{target.name}-corpus"
    corpus.mkdir()
    for number, data in enumerate(target.seeds()):
        (corpus / str(number)).write_bytes(data)
    artifacts = folder / f"{target.name}-found"
    artifacts.mkdir()
    log = folder / f"{target.name}.log"
    command = [
        *(sys.executable, "-m", "tests.fuzz.guided", target.name, f"-max_total_time={seconds}", f"-seed={seed}"),
        *(f"-max_len={MAX_BYTES}", f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEGABYTES}", "-print_final_stats=1"),
        *("-len_control=0", f"-artifact_prefix={artifacts}/", str(corpus)),
    ]
    with log.open("wb") as out:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=seconds + GRACE_SECONDS + INPUT_SECONDS,
            check=False,
        )
    text = log.read_text(errors="replace")
    covered, runs = _COVERED.findall(text), _EXECUTED.findall(text)
    what = f"{int(runs[-1]) if runs else 0:,} inputs, {covered[-1] if covered else 0} branches covered"
    for path in sorted(artifacts.iterdir()):
        data = path.read_bytes()
        found = examine(target.name, target.check, data)
        return found or Finding(target.name, data, f"{path.name}: it took too long or too much memory"), what
    if done.returncode or not runs:
        raise SystemExit(f"atheris failed ({done.returncode}); the end of {log}:\n{text[-3000:]}")
    return None, what


if __name__ == "__main__":
    sys.exit(main())
