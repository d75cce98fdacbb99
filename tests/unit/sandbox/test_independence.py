"""The sandbox is another system: it imports nothing of the app, and its modules import each other without cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import payments_integration.sandbox

PACKAGE = Path(payments_integration.sandbox.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
OUTSIDE = {"django", "requests"}


def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def test_only_django_requests_and_the_standard_library() -> None:
    for path in FILES:
        for node in imports(path):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, path
                names = [node.module or ""] if node.level == 0 else []
            else:
                names = [alias.name for alias in node.names]
            for name in names:
                top = name.partition(".")[0]
                assert top in OUTSIDE or top in sys.stdlib_module_names, f"{path}: {name}"


def test_no_module_is_too_long_and_none_imports_within_a_function() -> None:
    for path in FILES:
        text = path.read_text()
        assert len(text.splitlines()) <= 350, path
        top_level = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert len(imports(path)) == len(top_level), path


def test_there_are_no_import_cycles() -> None:
    names = {path.stem for path in FILES}
    graph: dict[str, set[str]] = {path.stem: set() for path in FILES}
    for path in FILES:
        for node in imports(path):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                targets = [node.module] if node.module else [alias.name for alias in node.names]
                graph[path.stem] |= {target for target in targets if target in names}
    while leaves := {name for name, targets in graph.items() if not targets}:
        graph = {name: targets - leaves for name, targets in graph.items() if name not in leaves}
    assert graph == {}


def test_it_can_be_imported_without_settings_and_without_a_warning() -> None:
    program = "import payments_integration.sandbox as sandbox; sandbox.Engine().fund('CLP', 1)"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, cwd=PACKAGE.parents[1])
