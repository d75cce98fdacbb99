"""What django.setup() costs with the app: CPU time against the same project without it, in turns.

    python benchmarks/start.py [--runs 21] [--modules 10] [--json FILE]

Copies the package to a directory of its own and compiles it, so that bytecode is there as in an installed one, and
starts Python again and again: with the app and without, with Django's admin and without. Of each the median counts.
Exits 1 beyond the limit. ``--modules``: also which modules of the app took longest, by ``-X importtime``.
"""

from __future__ import annotations

import argparse
import compileall
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.figures import Figure, report  # noqa: E402

#: CPU with the app to that without it, at most.
LIMITS = {"with Django's admin": 1.7, "without the admin": 1.4}

SETUP = """
import sys, time
began = time.process_time()
import django
from django.conf import settings

apps = ["contenttypes", "auth", "sessions", "messages", *(["admin"] if "admin" in sys.argv else [])]
settings.configure(
    SECRET_KEY="a-key-for-this-measurement-only",
    INSTALLED_APPS=[
        *(f"django.contrib.{name}" for name in apps),
        "rest_framework",
        *(["payments_integration"] if "app" in sys.argv else []),
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": {"BASE_URL": "https://provider.example", "API_KEY": "sk_test_x"}}},
)
django.setup()
print((time.process_time() - began) * 1000)
"""
_LINE = re.compile(r"import time: +(\d+) \| +(\d+) \| +(payments_integration[\w.]*)")

#: Other installed apps, and how the report describes them.
VARIANTS: dict[str, tuple[str, ...]] = {"with Django's admin": ("admin",), "without the admin": ()}


def start(place: Path, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """One start of Python in a directory that has the app."""
    unwritten = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *options, "-c", SETUP, *words],
        cwd=place,
        env={name: value for name, value in os.environ.items() if name not in unwritten},
        capture_output=True,
        text=True,
        check=True,
    )


def measure(place: Path, runs: int) -> dict[str, tuple[float, float]]:
    """Milliseconds with the app and without, of each variant."""
    spent: dict[tuple[str, bool], list[float]] = {(name, app): [] for name in VARIANTS for app in (True, False)}
    for run in range(runs + 1):
        for (name, app), times in spent.items():
            ended = start(place, *VARIANTS[name], *(["app"] if app else []))
            if run:  # the first one compiles what was not, and fills the page cache
                times.append(float(ended.stdout))
    return {name: (statistics.median(spent[name, True]), statistics.median(spent[name, False])) for name in VARIANTS}


def slowest(place: Path, most: int) -> list[tuple[int, str]]:
    """The app's own modules that took longest by themselves: microseconds, the least of five starts."""
    least: dict[str, int] = {}
    for _ in range(5):
        for own, _all, name in _LINE.findall(start(place, "admin", "app", options=("-X", "importtime")).stderr):
            least[name] = min(int(own), least.get(name, int(own)))
    return sorted(((time, name) for name, time in least.items()), reverse=True)[:most]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21, help="starts of each of the four")
    parser.add_argument("--modules", type=int, default=0, help="show so many of the app's modules")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pi-start-") as directory:
        place = Path(directory)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "payments_integration", place / "payments_integration", ignore=ignored)
        compileall.compile_dir(place, quiet=1)
        found = measure(place, options.runs)
        modules = slowest(place, options.modules) if options.modules else []
    print(f"{'django.setup(), ms of CPU':<28}{'with':>8}{'without':>9}")
    for name, (has, lacks) in found.items():
        print(f"{name:<28}{has:>8.1f}{lacks:>9.1f}")
    for time, module in modules:
        print(f"{time / 1000:>8.2f} ms  {module}")
    return report(
        [
            Figure(f"django.setup(), {name}", has / lacks, LIMITS[name], "less", "of that without the app")
            for name, (has, lacks) in found.items()
        ],
        options.json,
    )


if __name__ == "__main__":
    sys.exit(main())
