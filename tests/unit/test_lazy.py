"""Packages that load their modules with the first use look to type checkers as they are."""

from __future__ import annotations

import ast
import inspect
import py_compile
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from payments_integration import handlers, inbox, schemas

PACKAGES = ["inbox", "reconciliation", "services", "admin.flows", "outbox"]


def declared(package: Any) -> dict[str, Any]:
    """What the imports under ``if TYPE_CHECKING`` bring."""
    blocks = [
        node.body
        for node in ast.parse(inspect.getsource(package)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    names: dict[str, Any] = {}
    exec("\n".join(ast.unparse(line) for body in blocks for line in body), names)
    del names["__builtins__"]
    assert names
    return names


@pytest.mark.parametrize("name", PACKAGES)
def test_every_declared_name_exists(name: str) -> None:
    package = import_module(f"payments_integration.{name}")
    for exported, expected in declared(package).items():
        assert getattr(package, exported) is expected
        assert exported in dir(package)
    assert set(package.__all__) <= declared(package).keys()


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_is_declared(name: str) -> None:
    package = import_module(f"payments_integration.{name}")
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name
    there = {exported for exported in dir(package) if not exported.startswith("_")} - {"TYPE_CHECKING", "lazy"}
    modules = {exported for exported in there if inspect.ismodule(getattr(package, exported))}
    assert there - modules <= declared(package).keys()


def test_a_package_without_its_sources_finds_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment may have compiled files only."""
    source = Path(inspect.getfile(inbox)).read_text(encoding="utf-8")
    (tmp_path / "module.py").write_text(source, encoding="utf-8")
    (tmp_path / "bare").mkdir()
    py_compile.compile(str(tmp_path / "module.py"), cfile=str(tmp_path / "bare" / "__init__.pyc"), doraise=True)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        bare = import_module("bare")
        assert bare.__all__ == inbox.__all__
        assert bare.process is inbox.process
    finally:
        sys.modules.pop("bare", None)


def test_the_kinds_of_handlers_are_those_of_the_schemas() -> None:
    assert handlers._MODELS.keys() == schemas.EVENT_RESOURCES.keys()
