"""Packages whose modules are loaded with the first use of what they export (PEP 562).

What merely starts with the app, such as ``manage.py migrate`` or a worker of the project's own, loads no flow for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def exports(
    name: str, modules: Mapping[str, Sequence[str]], *, package: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of the package ``name``. ``modules``: each module of it, or of ``package``, with
    the names that are exported of it. The modules themselves are there too.

    To type checkers and import-linter the package shows ordinary imports, under ``TYPE_CHECKING``; a test compares the
    two.
    """
    homes = {exported: module for module, names in modules.items() for exported in names}

    def load(wanted: str) -> Any:
        if wanted in modules:
            found: Any = import_module(f"{package or name}.{wanted}")
        elif wanted in homes:
            found = getattr(import_module(f"{package or name}.{homes[wanted]}"), wanted)
        else:
            raise AttributeError(f"module {name!r} has no attribute {wanted!r}")
        # The next use finds it without coming here.
        setattr(sys.modules[name], wanted, found)
        return found

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[name]), *modules, *homes})

    return load, listed
