"""``python -m tests.release.ready v0.1.0``: can this tree be released under this tag?

Prints what is left to do. Exits with 1 if there is something: a placeholder of ``CONTRIBUTING.md``, a version that is
not the tag's, or a changelog without the version's date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def placeholders(root: Path = ROOT) -> list[tuple[str, int]]:
    """Each file at the top of the project or with rules of the package, and the line, that names example.org."""
    patterns = ("*.md", "*.toml", "*.yml", "payments_integration/**/*.yml")
    files = [path for pattern in patterns for path in sorted(root.glob(pattern))]
    return [
        (path.name, number)
        for path in files
        if path.name != "CONTRIBUTING.md"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "example.org" in line
    ]


def problems(tag: str, root: Path = ROOT) -> list[str]:
    found = [f"{name}:{line}: replace the placeholder example.org" for name, line in placeholders(root)]
    package = (root / "payments_integration" / "__init__.py").read_text()
    version = re.findall(r'^__version__ = "(.+)"$', package, re.MULTILINE)[0]
    if tag != f"v{version}":
        found.append(f"payments_integration/__init__.py: the version is {version}, the tag {tag}")
    changelog = (root / "CHANGELOG.md").read_text()
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md: write the date, as in: ## [{version}] - 2026-01-31")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if unreleased and re.search(r"^- ", unreleased[1], re.MULTILINE):
        found.append(f"CHANGELOG.md: move the entries under Unreleased to {version}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tag", help="v and the version")
    found = problems(parser.parse_args().tag)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
