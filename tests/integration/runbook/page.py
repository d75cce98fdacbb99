"""The page as data: an entry per code, with the screen it quotes and the commands it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

PAGE = Path(__file__).resolve().parents[3] / "docs" / "runbook.md"

_ID = re.compile(r"\b(whk|op|quarantine)_[0-9a-z]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """One code's entry."""

    text: str
    #: What ``payments_health --explain`` prints about it; "…" stands for anything.
    screen: str
    #: The labelled lines below the screen, by their labels.
    lines: dict[str, str]

    def commands(self, *labels: str) -> set[str]:
        """The commands that these lines name, without ``python manage.py``."""
        found = re.findall(
            r"`(?:python manage\.py )?(\w+(?: [^`]+)?)`", " ".join(self.lines.get(label, "") for label in labels)
        )
        return {words for words in found if re.match(r"(payments_|migrate|check)", words)}

    def pasted(self) -> str:
        """The code that a person pastes into ``manage.py shell``."""
        [code] = re.findall(r"^ *```python\n(.*?)^ *```", self.text, re.MULTILINE | re.DOTALL)
        return dedent(code)

    def quoted(self, label: str) -> list[str]:
        """The words of the app that a line quotes."""
        return re.findall(r"“(.+?)”", self.lines[label])

    def others(self) -> set[str]:
        """The codes that show together with this one."""
        return set(re.findall(r"\[`(\w+)`\]\(#\w+\)", self.lines.get("Comes with", "")))

    def shows(self, output: str) -> bool:
        """Whether an output has the quoted screen."""
        wanted = ".+?".join(map(re.escape, _plain(self.screen).split("…")))
        return re.search(rf"(^| ){wanted}( |$)", _plain(output)) is not None


def entries() -> dict[str, Entry]:
    """The entries by their codes, in the page's order."""
    found = {}
    for code, text in re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        screen = re.search(r"```output\n(.*?)```", text, re.DOTALL)
        lines = re.findall(r"^- \*\*(.+?)\*\*: (.*?)(?=^- |\Z)", text, re.MULTILINE | re.DOTALL)
        assert len(dict(lines)) == len(lines), code
        found[code] = Entry(text, screen[1] if screen else "", {label: _plain(words) for label, words in lines})
    return found


def typed(*words: str) -> str:
    """A command as the page names it: ids are different on every site."""
    return _ID.sub(r"\1_…", " ".join(words))


def _plain(text: str) -> str:
    return " ".join(text.replace("\xa0", " ").split())
