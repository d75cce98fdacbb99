"""Load each module of a package with its first use (PEP 562).

A process that starts the app, such as ``manage.py migrate``, then loads no flow that it does not run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of ``package``, read from its ``if TYPE_CHECKING:`` imports.

    Those imports are the only list of names. Type checkers and import-linter read them as ordinary imports.
    """
    homes = _imports(package)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = homes[name]
        loaded = import_module(module)
        if module != package and hasattr(loaded, original):
            found = getattr(loaded, original)
        else:
            found = import_module(f"{module}.{original}")
        # The next use finds the name without this function.
        setattr(sys.modules[package], name, found)
        return found

    return load, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)


def _imports(package: str) -> dict[str, tuple[str, str]]:
    """Return each imported name, with its module and its name there."""
    tree = ast.parse(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {
        alias.asname or alias.name: (str(line.module), alias.name)
        for block in blocks
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
