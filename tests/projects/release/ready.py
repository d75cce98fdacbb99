"""``python -m tests.projects.release.ready v0.1.0``: can this tree be released under this tag?

Prints what is left to do. Exits with 1 if there is something: a placeholder of ``CONTRIBUTING.md``, a version that is
not the tag's, or a changelog without the version's date.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


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


def notes(tag: str, root: Path = ROOT) -> str:
    """The changelog's section of the tag's version, without its heading. Links lead to the files of the tag."""
    changelog = (root / "CHANGELOG.md").read_text()
    heading = rf"^## \[{re.escape(tag.removeprefix('v'))}\] - [^\n]*\n"
    section = re.search(rf"{heading}(.*?)(?=^## |^\[[^]]+\]: |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None:
        raise SystemExit(f"CHANGELOG.md has no section of {tag}.")
    source = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    text = re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", rf"]({source}/blob/{tag}/\1)", section[1])
    return f"{text.strip()}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tag", help="v and the version")
    parser.add_argument("--notes", action="store_true", help="print the changelog's section of this version instead")
    options = parser.parse_args()
    if options.notes:
        sys.stdout.write(notes(options.tag))
        return 0
    found = problems(options.tag)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
