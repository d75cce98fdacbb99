"""The bills of materials name every dependency that an install brings, with its version and its licence."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from payments_integration import __version__
from tests.projects.release.conftest import ROOT, built

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def required(extras: set[str]) -> list[Requirement]:
    """The requirements of the project with these extras; an extra can name others of the project."""
    found = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, EXTRAS[extra]):
            own = requirement.name == PROJECT["name"]
            found += required(requirement.extras) if own else [requirement]
    return found


@pytest.mark.parametrize(("name", "extras"), [("bare", set[str]()), ("all", {"all"})])
def test_every_dependency_is_in_the_bill_with_version_and_licence(name: str, extras: set[str]) -> None:
    bill: dict[str, Any] = json.loads(built(f"sbom-{name}.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == (PROJECT["name"], __version__)
    components = {canonicalize_name(component["name"]): component for component in bill["components"]}
    needed = required(extras)
    assert len(needed) >= len(PROJECT["dependencies"])
    for requirement in needed:
        component = components.get(canonicalize_name(requirement.name), {})
        assert requirement.specifier.contains(component.get("version", "")), (requirement, component)
        assert component.get("licenses"), (requirement, component)
    assert all(component["version"] for component in components.values())
    assert not components.keys() & {"pip", "setuptools", "pytest", "build"}


def test_the_bill_of_all_extras_contains_the_bare_one() -> None:
    bare, everything = (
        {component["name"] for component in json.loads(built(f"sbom-{name}.json").read_text())["components"]}
        for name in ("bare", "all")
    )
    assert bare < everything
