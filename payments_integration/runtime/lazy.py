"""Load each module of a package with its first use (PEP 562).

A process that starts the app, such as ``manage.py migrate``, then loads no flow that it does not run.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from importlib import import_module
from types import CodeType
from typing import Any


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of ``package``, read from its ``if TYPE_CHECKING:`` imports.

    Those imports are the only list of names. Type checkers and import-linter read them as ordinary imports. They are
    read from the caller's compiled code, because a deployment may have no sources.
    """
    # What was imported in earnest is there already.
    there = vars(sys.modules[package])
    homes = {name: home for name, home in _imports(sys._getframe(1).f_code).items() if name not in there}

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


def _imports(code: CodeType) -> dict[str, tuple[str, str]]:
    """Return each name that a ``from … import`` binds, with its module and its name there."""
    found: dict[str, tuple[str, str]] = {}
    module = original = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = str(step.argval)
        elif step.opname == "IMPORT_FROM":
            original = str(step.argval)
        elif step.opname == "STORE_NAME" and original:
            found[str(step.argval)] = (module, original)
            original = ""
    return found
