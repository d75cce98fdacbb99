"""docs/install.md names every package that a user may get, why, and under which licence."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = (ROOT / "docs" / "install.md").read_text().partition("\n## Licences\n")[2]
#: Each package with the extra that brings it, and its licence.
ROWS = {
    name: (extra or "required", licence)
    for licence, packages in re.findall(r"^\| (.+) \| (.+) \|$", PAGE, re.M)
    if licence != "licence"
    for name, extra in re.findall(r"([\w-]+)(?: \(`([\w-]+)`\))?(?:, |$)", packages)
}
_FAMILY = re.compile(r"AGPL|LGPL|GPL|MPL|BSD|MIT|Apache|ISC|PSF")


def families(text: str) -> set[str]:
    return set(_FAMILY.findall(text))


def declared(name: str) -> str:
    """What an installed package says of its licence; empty if it is not installed."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return ""
    said = found.get("License-Expression") or found.get("License", "").partition("\n")[0]
    classifiers = " ".join(line for line in found.get_all("Classifier", []) if line.startswith("License"))
    # Some write their copyright into the field License.
    return said if families(said) else classifiers or said


def test_every_requirement_has_a_row() -> None:
    needed = {Requirement(line).name: "required" for line in PROJECT["dependencies"]}
    for extra, lines in PROJECT["optional-dependencies"].items():
        needed |= {name: extra for line in lines if (name := Requirement(line).name) != PROJECT["name"]}
    assert {name: extra for name, (extra, _) in ROWS.items()} == needed


def test_the_licences_are_those_that_the_packages_declare() -> None:
    found = {name: declared(name) for name in ROWS}
    assert all(found[name] for name, (extra, _) in ROWS.items() if extra == "required")
    # An earlier version may name one of two licences only.
    wrong = {
        name: said
        for name, said in found.items()
        if said and not (families(said) and families(said) <= families(ROWS[name][1]))
    }
    assert wrong == {}
