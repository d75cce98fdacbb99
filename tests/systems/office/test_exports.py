"""Exports open in a spreadsheet: numbers and times are recognised, a column adds up, and nothing is a formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from tests.factories import rows
from tests.systems.office.calc import Calc
from tests.unit.admin.conftest import browser, url

#: LibreOffice's filter for CSV: separator, quotes, UTF-8, first line, formats, language, not all quoted, dates.
#: The language is Windows' number of it.
ES_CL = "CSV:59,34,76,1,,13322,false,true"
EN_US = "CSV:44,34,76,1,,1033,false,true"
FORMULAS = ("=1+1", "+1+1", "-1+1", "@SUM(1)", "ref;=1+1", "ref,=1+1", "\t=1+1", "＝1+1")


@pytest.fixture
def boss(db: None) -> Client:
    return browser(User.objects.create_superuser("boss"))


@pytest.fixture(scope="module")
def calc(tmp_path_factory: pytest.TempPathFactory) -> Calc:
    return Calc(tmp_path_factory.mktemp("calc"))


def export(boss: Client, folder: Path, *, language: str = "en", chosen: str = "") -> Path:
    with translation.override(language):
        response: Any = boss.get(url("payment", "export"), {"format": chosen})
        content = b"".join(response.streaming_content)
    file = folder / response.headers["Content-Disposition"].partition('"')[2].rstrip('"')
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    ("language", "chosen", "opened_as"),
    [
        ("es-cl", "csv", ES_CL),
        ("en-us", "csv", EN_US),
        ("en-us", "csv-comma", ES_CL),
        ("es-cl", "csv-point", EN_US),
        ("es-cl", "xlsx", ""),
        ("en-us", "xlsx", ""),
    ],
)
def test_numbers_and_times_are_recognised_and_a_column_adds_up(
    boss: Client, calc: Calc, tmp_path: Path, settings: Any, language: str, chosen: str, opened_as: str
) -> None:
    settings.TIME_ZONE = "America/Santiago"
    for amount in (123_450, 1_005, 99_999_999):
        rows.payment(amount=amount, amount_received=amount, currency="USD", fee=-5, created_at=rows.AT)
    file = export(boss, tmp_path, language=language, chosen=chosen)
    found = calc.rows(file, opened_as=opened_as)
    assert len(found) == 3
    assert {row[name].kind for row in found for name in ("amount", "amount_received", "fee")} == {"float"}
    assert sorted(float(row["amount"].value) for row in found) == [10.05, 1234.5, 999_999.99]
    assert {(row["created_at"].kind, row["created_at"].value) for row in found} == {("date", "2025-03-04T02:06:07")}
    assert {row["id"].kind for row in found} == {"string"}
    assert calc.total(file, "C", opened_as=opened_as) == "1001244.54"


@pytest.mark.parametrize(("chosen", "opened_as"), [("csv-comma", ES_CL), ("csv-point", EN_US), ("xlsx", "")])
def test_pesos_have_no_decimals(boss: Client, calc: Calc, tmp_path: Path, chosen: str, opened_as: str) -> None:
    rows.payment(amount=15_990, currency="CLP")
    rows.payment(amount=1_000, currency="CLP")
    file = export(boss, tmp_path, chosen=chosen)
    assert sorted(row["amount"].value for row in calc.rows(file, opened_as=opened_as)) == ["1000", "15990"]
    assert calc.total(file, "C", opened_as=opened_as) == "16990"


@pytest.mark.parametrize(
    ("chosen", "opened_as"),
    # Also with the other filter: whoever opens a file may have another language than whoever made it.
    [("csv-comma", ES_CL), ("csv-comma", EN_US), ("csv-point", EN_US), ("csv-point", ES_CL), ("xlsx", "")],
)
def test_no_cell_is_a_formula(boss: Client, calc: Calc, tmp_path: Path, chosen: str, opened_as: str) -> None:
    for text in FORMULAS:
        rows.payment(merchant_reference=text)
    found = calc.lines(export(boss, tmp_path, chosen=chosen), opened_as=opened_as)
    assert len(found) == 1 + len(FORMULAS)
    cells = [cell for line in found for cell in line]
    assert sum("1+1" in cell.value or "SUM" in cell.value for cell in cells) == len(FORMULAS)
    assert [cell for cell in cells if cell.formula] == []
