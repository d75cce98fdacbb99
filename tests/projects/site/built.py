"""The built site as data: what a page says, what it asks for, where it links, and the ids that links may name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Elements that make a browser ask for something, and the attribute that names it.
_ASKING = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src",
    "object": "data", "link": "href", "use": "href",
}  # fmt: skip
#: Links of a head that are not fetched.
_NOT_FETCHED = {"canonical", "prev", "next", "edit", "alternate"}
_CSS_URL = re.compile(r"""(?:url\(|@import\s)\s*["']?([^"')\s]+)""")


@dataclass
class Page(HTMLParser):
    path: Path
    requests: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    #: The text below each heading, by the heading's id, up to the next heading; "" is what comes before the first one.
    sections: dict[str, str] = field(default_factory=dict)
    #: All of the text, and the same without code.
    text: str = ""
    prose: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._code, self._heading = 0, ""
        self.feed(self.path.read_text(encoding="utf-8"))
        self.text = " ".join(self.text.split())
        self.sections = {name: " ".join(text.split()) for name, text in self.sections.items()}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._code += tag in ("pre", "code", "script", "style")
        if given.get("id"):
            self.ids.add(given["id"])
            if re.fullmatch("h[1-6]", tag):
                self._heading = given["id"]
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(_ASKING.get(tag, "")) and not _NOT_FETCHED & {*given.get("rel", "").split()}:
            self.requests.append(given[_ASKING[tag]])
        self.requests += _CSS_URL.findall(given.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("pre", "code", "script", "style")

    def handle_data(self, data: str) -> None:
        self.text += data
        self.sections[self._heading] = self.sections.get(self._heading, "") + data
        if not self._code:
            self.prose += data


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = {path.relative_to(folder).as_posix(): Page(path) for path in sorted(folder.rglob("*.html"))}

    def page(self, source: str) -> Page:
        """The page that is made of this file of ``docs/``."""
        name = source.removesuffix(".md")
        return self.pages["index.html" if name == "index" else f"{name}/index.html"]

    def asked(self) -> dict[str, list[str]]:
        """Everything that a browser fetches, by the page or stylesheet that asks for it."""
        sheets = {path: path.read_text(encoding="utf-8") for path in self.folder.rglob("*.css")}
        return {name: page.requests for name, page in self.pages.items()} | {
            path.relative_to(self.folder).as_posix(): _CSS_URL.findall(text) for path, text in sheets.items()
        }

    def dead_links(self) -> list[str]:
        """Links within the site that lead to no page, or to no id of it."""
        return [
            f"{name}: {link}"
            for name, page in self.pages.items()
            for link in page.links
            # The page for addresses that do not exist has links from the root.
            if name != "404.html" and not self._leads_somewhere(page, link)
        ]

    def _leads_somewhere(self, page: Page, link: str) -> bool:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return True
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        if target.is_dir():
            target /= "index.html"
        if not parts.fragment or target.suffix != ".html":
            return target.exists()
        found = self.pages.get(target.relative_to(self.folder).as_posix())
        return found is not None and unquote(parts.fragment) in found.ids
