"""The sandbox imports nothing of the app, and its modules have no import cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import payments_integration.sandbox

PACKAGE = Path(payments_integration.sandbox.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ALLOWED = {"django", "requests"}


def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported_files(path: Path) -> set[Path]:
    """The files of the sandbox that this one imports."""
    found: set[Path] = set()
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in names:
                candidates = (
                    path.parent / f"{name}.py",
                    path.parent / name / "__init__.py",
                    path.parent / "__init__.py",
                )
                found.add(next(candidate for candidate in candidates if candidate.exists()))
    return found


def test_the_sandbox_imports_only_django_requests_and_the_standard_library() -> None:
    for path in FILES:
        for node in imports(path):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, path
                names = [node.module or ""] if node.level == 0 else []
                if names == ["payments_integration"] and [alias.name for alias in node.names] == ["__version__"]:
                    continue
            else:
                names = [alias.name for alias in node.names]
            for name in names:
                top = name.partition(".")[0]
                assert top in ALLOWED or top in sys.stdlib_module_names, f"{path}: {name}"


def test_modules_have_at_most_350_lines_and_no_imports_in_functions() -> None:
    for path in FILES:
        text = path.read_text()
        assert len(text.splitlines()) <= 350, path
        top_level = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert len(imports(path)) == len(top_level), path


def test_there_are_no_import_cycles() -> None:
    graph = {path: imported_files(path) for path in FILES}
    while leaves := {path for path, targets in graph.items() if not targets}:
        graph = {path: targets - leaves for path, targets in graph.items() if path not in leaves}
    assert graph == {}


def test_the_sandbox_can_be_imported_without_settings_and_warnings() -> None:
    program = "import payments_integration.sandbox as sandbox; sandbox.Engine().fund('CLP', 1)"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, cwd=PACKAGE.parents[1])
