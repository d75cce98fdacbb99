"""Describe what a project lacks, and write it into the project's own files."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver

from payments_integration.management.quickstart import project_files
from payments_integration.management.quickstart.project_files import NotUnderstood

#: The package of this app.
APP = "payments_integration"


@dataclass(frozen=True)
class Gap:
    """Something that is missing: what, in which file, the lines to add, and how to write them (None: by hand)."""

    what: str
    place: str
    snippet: str
    write: Callable[[], None] | None = None


def fill(gap: Gap) -> str:
    """Write what is missing. Returns why it could not be written; empty if it was."""
    if gap.write is None:
        return "not written, because only you can decide how"
    try:
        gap.write()
    except (NotUnderstood, ImproperlyConfigured) as error:
        return f"not written: {error}"
    except OSError as error:
        return f"not written: {error.strerror}"
    return ""


def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


def change(path: Path | None, edit: project_files.Edit) -> None:
    if path is None:
        raise NotUnderstood("it has no file")
    if not is_own(path, Path.cwd()):
        raise NotUnderstood("it is not in the current folder")
    project_files.change(path, edit)


def create(path: Path, text: str) -> None:
    change(path, lambda _: text)


def is_own(path: Path, root: Path) -> bool:
    """Return True if a file or folder belongs to the project and not to an installed package."""
    return path.is_relative_to(root) and not is_installed(path) and path.name != APP


def is_installed(path: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def source_of(module: str | None) -> Path | None:
    """Return the file of a module; None if it has none."""
    try:
        spec = importlib.util.find_spec(module) if module else None
    except (ImportError, ValueError):
        spec = None
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.has_location else None


def as_shown(path: Path | None, root: Path) -> str:
    if path is None:
        return "a module without a file"
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def route(
    root: Path, what: str, prefix: str, module: str, is_there: Callable[[], bool], *, by_hand: bool = False
) -> Iterator[Gap]:
    """Yield the change that adds the routes of ``module`` below ``prefix``, unless ``is_there`` finds them."""
    name = getattr(settings, "ROOT_URLCONF", None)
    path = source_of(name)
    place = f"{as_shown(path, root)}, first in urlpatterns"
    entry = f'path("{prefix}", include("{module}"))'
    snippet = f"from django.urls import include, path\n\n{entry},"
    try:
        if is_there():
            return
        is_taken = any(str(found.pattern).startswith(prefix) for found in get_resolver().url_patterns)
    except Exception as error:  # the project's own modules may raise any error; it may have the route already
        why = f"{place}, if it is not there; {name} cannot be imported: {type(error).__name__}: {error}"
        yield Gap(what, why, snippet)
        return
    if is_taken:
        why = f"{place}; the project has routes under {prefix} already, so choose another prefix"
        yield Gap(what, why, snippet.replace(f'"{prefix}"', '"…/"'))
    else:
        edit = partial(project_files.with_url, entry=entry)
        yield Gap(what, place, snippet, None if by_hand else partial(change, path, edit))
