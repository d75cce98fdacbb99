"""What a page of HTML holds: its forms, and the code that a strict Content-Security-Policy refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Form:
    id: str
    action: str
    #: The values that a browser would send if nothing is typed.
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.links: list[str] = []
        #: The start tags of scripts and styles that are written into the page without a nonce, and of elements with
        #: an attribute of style or of an event.
        self.inline: list[str] = []
        self._select = ""
        self._text_area = ""
        self.feed(html)

    def form(self, id: str = "", field: str = "") -> Form:
        """The form with this id, or the first one with this field."""
        found = [form for form in self.forms if (form.id == id if id else field in form.fields)]
        assert found, f"no form {id or field} among {self.forms}"
        return found[0]

    def link(self, *parts: str) -> str:
        """The first link with all of these in its address."""
        found = [link for link in self.links if all(part in link for part in parts)]
        assert found, f"no link with {parts} among {self.links}"
        return found[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        is_code = tag == "style" or (
            tag == "script" and "src" not in found and found.get("type", "") in ("", "module", "text/javascript")
        )
        attributes = [name for name in found if name == "style" or name.startswith("on")]
        if (is_code and "nonce" not in found) or attributes:
            self.inline.append(self.get_starttag_text() or tag)
        if tag == "a":
            self.links.append(found.get("href", ""))
        elif tag == "form":
            self.forms.append(Form(found.get("id", ""), found.get("action", "")))
        elif self.forms:
            self._note_field(tag, found)

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._text_area = ""

    def handle_data(self, data: str) -> None:
        if self._text_area:
            self.forms[-1].fields[self._text_area] += data

    def _note_field(self, tag: str, found: dict[str, str]) -> None:
        fields, name = self.forms[-1].fields, found.get("name", "")
        if tag == "input" and name:
            kind = found.get("type", "text")
            if kind not in ("submit", "checkbox", "radio") or "checked" in found:
                fields[name] = found.get("value", "")
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and ("selected" in found or self._select not in fields):
            fields[self._select] = found.get("value", "")
        elif tag == "textarea":
            fields[name], self._text_area = "", name
