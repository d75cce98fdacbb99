"""The app ``feeds``, written from docs/reports.md word for word into a folder of its own."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reports.md").read_text()

_BLOCK = re.compile(r"^(?P<lead>[^\n]*)\n\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def write() -> Path:
    """A folder with the package; the files that the page gives in whole."""
    folder = Path(tempfile.mkdtemp(prefix="pi-feeds-"))
    (folder / "feeds").mkdir()
    (folder / "feeds" / "__init__.py").touch()
    for block in _BLOCK.finditer(PAGE):
        if found := re.match(r"The whole of `(feeds/\w+\.py)`", block["lead"]):
            (folder / found[1]).write_text(block["text"])
    return folder


def block_after(lead: str) -> str:
    """The one block of code below a line that contains this text."""
    [text] = [block["text"] for block in _BLOCK.finditer(PAGE) if lead in block["lead"]]
    return text
