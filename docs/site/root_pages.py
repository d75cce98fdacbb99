"""Build hook: the root's Markdown files are pages too, and links between root and ``docs/`` lead to pages.

The files keep links that work on a forge. A link to a file that is no page leads to the forge, which
``[project.urls]`` of ``pyproject.toml`` names.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
#: Files of the root, and the page that each becomes. The home page stands for the README.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "LICENSE": "license.md",
}
#: Pages that people look up by name. In the search, guides with the same words come first.
LOOKED_UP = re.compile("|".join([r"api/.*", r"reliability\.md", *map(re.escape, {*PAGES.values()} - {"index.md"})]))
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?=[)#])")


def on_files(files: Files, *, config: Any) -> Files:
    for name, page in PAGES.items():
        if page != "index.md":
            text = (ROOT / name).read_text(encoding="utf-8")
            title = "" if name.endswith(".md") else f"# {name.capitalize()}\n\n"
            files.append(File.generated(config, page, content=title + from_root(text)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links that leave ``docs/``, and a page's place in the search."""
    if LOOKED_UP.fullmatch(page.file.src_uri):
        page.meta.setdefault("search", {"boost": 0.3})
    folder = f"docs/{page.file.src_uri}".rpartition("/")[0]

    def lead(link: re.Match[str]) -> str:
        path = normpath(f"{folder}/{link['path']}")
        return link["path"] if path.startswith("docs/") else _target(path, up="../" * folder.count("/"))

    return _unescaped(LINK.sub(lead, markdown))


def _unescaped(markdown: str) -> str:
    """Forges need ``\\|`` in the code of a table; here the backslash would show."""
    row = re.compile(r"^\|.*$", re.MULTILINE)
    return row.sub(lambda line: re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), line[0]), markdown)


def from_root(markdown: str) -> str:
    """The text of a file of the root with its links as a page of the site has them."""
    return LINK.sub(lambda link: _target(normpath(link["path"]), up=""), markdown)


def _target(path: str, *, up: str) -> str:
    if path in PAGES:
        return up + PAGES[path]
    return up + path.removeprefix("docs/") if path.startswith("docs/") else source() + path


@cache
def source() -> str:
    """Where the root's files are on the forge: the folder of the changelog."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Changelog"]).removesuffix("CHANGELOG.md")
