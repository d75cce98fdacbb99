"""A short run of every benchmark, against the figures of the last long one.

    python benchmarks/bench.py [--record]

Exits 1 where a figure is worse than the recorded one by more than the tolerance: half for what is timed, because
machines are noisy and ratios of a short run are not free of it, a tenth for what is counted. ``--record`` makes a
long run and keeps its figures in ``benchmarks/recorded.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
#: The arguments of a short run and of a long one.
RUNS: dict[str, tuple[list[str], list[str]]] = {
    "start.py": (["--runs", "7"], ["--runs", "21"]),
    "calls.py": (["--calls", "200"], ["--calls", "1000"]),
    "catchup.py": (["--events", "20000", "--rounds", "1"], ["--events", "20000", "--rounds", "3"]),
    "handlers.py": (["--events", "20000", "--rounds", "1"], ["--events", "100000", "--rounds", "3"]),
    "sweeps.py": (["--payments", "20000"], ["--payments", "20000"]),
    "webhooks.py": (["--events", "1500", "--rounds", "1"], ["--events", "3000", "--rounds", "3"]),
}
TIMED, COUNTED = 1 / 2, 0.1
#: What is counted, or nearly so.
_COUNTS = ("statements", "peak MB")
#: Of another machine's it says nothing.
_ABSOLUTE = "events/s"


def measure(*, long: bool) -> dict[str, dict[str, Any]]:
    """Every figure by its name; a benchmark that fails otherwise than by a limit ends the run."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="pi-bench-") as folder:
        for script, arguments in RUNS.items():
            path = Path(folder) / f"{script}.json"
            print(f"--- {script}", flush=True)
            command = [sys.executable, "-W", "error", str(HERE / script), *arguments[long], "--json", str(path)]
            ended = subprocess.run(command, check=False, cwd=HERE.parent).returncode
            if not path.exists():
                raise SystemExit(f"{script} ended with exit code {ended} and no figures")
            found |= {figure["name"]: figure for figure in json.loads(path.read_text())}
    return found


def regressions(found: dict[str, dict[str, Any]], recorded: dict[str, float]) -> list[str]:
    """What is worse than it was, in words; also what is not measured any more."""
    worse = [f"{name} is not measured" for name in recorded if name not in found]
    for name, was in recorded.items():
        if name in found:
            value = found[name]["value"]
            tolerance = COUNTED if any(word in name for word in _COUNTS) else TIMED
            ratio = value / was if found[name]["better"] == "more" else was / max(value, 1e-9)
            if ratio < 1 - tolerance:
                worse.append(f"{name}: {value:.3g}, recorded {was:.3g}")
    return worse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="a long run, whose figures are kept")
    options = parser.parse_args()
    found = measure(long=options.record)
    if options.record:
        kept = {name: float(f"{figure['value']:.3g}") for name, figure in found.items() if _ABSOLUTE not in name}
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n")
        return 0
    worse = regressions(found, json.loads(RECORDED.read_text()))
    print("\n".join(["", *worse, f"figures: {len(found)}, worse than recorded: {len(worse)}"]))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
