"""LibreOffice Calc without a window: what it makes of a file, cell by cell, and what it calculates."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.servers import binary

_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
#: Seconds for one conversion.
PATIENCE = 120


@dataclass(frozen=True)
class Cell:
    #: "float", "date", "string", …; empty for an empty cell.
    kind: str
    #: A number or a date as it is stored, not as it is shown.
    value: str
    formula: str


class Calc:
    """LibreOffice with a profile of its own in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def convert(self, file: Path, suffix: str, *, opened_as: str = "") -> Path:
        """The file in another format. ``opened_as``: the options of the filter that reads it."""
        output = self.folder / "converted"
        ended = subprocess.run(
            [
                binary("soffice", "libreoffice-calc-nogui"),
                f"-env:UserInstallation={(self.folder / 'profile').as_uri()}",
                "--headless",
                *([f"--infilter={opened_as}"] if opened_as else []),
                "--convert-to", suffix, "--outdir", str(output), str(file),
            ],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        made = output / f"{file.stem}.{suffix.partition(':')[0]}"
        assert made.exists(), ended.stdout + ended.stderr
        return made

    def lines(self, file: Path, *, opened_as: str = "") -> list[list[Cell]]:
        """The rows of the first sheet, the names of its columns first."""
        sheet = ET.parse(self.convert(file, "fods", opened_as=opened_as)).find(f".//{_TABLE}table")
        assert sheet is not None
        found = [list(_cells(row)) for row in sheet.iter(f"{_TABLE}table-row")]
        return [line for line in found if any(cell.kind for cell in line)]

    def rows(self, file: Path, *, opened_as: str = "") -> list[dict[str, Cell]]:
        """The rows below the first by the names in it."""
        first, *others = self.lines(file, opened_as=opened_as)
        return [dict(zip([name.value for name in first], line, strict=False)) for line in others]

    def total(self, file: Path, column: str, *, opened_as: str = "") -> str:
        """What ``SUM`` says of a column such as "C", in a sheet of its own."""
        content = self.convert(file, "fods", opened_as=opened_as).read_text()
        name = re.findall(r'<table:table table:name="(.*?)"', content)[0]
        formula = f"of:=SUM([$'{name}'.{column}2:.{column}1000])"
        total = f'<table:table-row><table:table-cell table:formula="{formula}"/></table:table-row>'
        sheet = f'<table:table table:name="total">{total}</table:table>'
        summed = self.folder / "summed.fods"
        summed.write_text(content.replace("<table:table ", f"{sheet}<table:table ", 1))
        return self.convert(summed, "csv").read_text().strip()


def _cells(row: ET.Element) -> Iterator[Cell]:
    for cell in row.iter(f"{_TABLE}table-cell"):
        text = "\n".join("".join(part.itertext()) for part in cell.iter(f"{_TEXT}p"))
        stored = cell.get(f"{_OFFICE}value") or cell.get(f"{_OFFICE}date-value") or text
        found = Cell(cell.get(f"{_OFFICE}value-type", ""), stored, cell.get(f"{_TABLE}formula", ""))
        # An empty rest of the row counts thousands.
        yield from [found] * min(int(cell.get(f"{_TABLE}number-columns-repeated", "1")), 100)
