"""Export a list as a file: read its rows in batches and write CSV, with one batch in memory at a time."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from django.utils.translation import gettext_lazy as _

from payments_integration.contrib.backoffice.admin.downloads import download
from payments_integration.dates import on_site
from payments_integration.db.keyset import Order
from payments_integration.money import decimal_separator, to_major
from payments_integration.validation.text import StrOrPromise

#: The format of an Excel file, the only format that needs an extra.
XLSX = "xlsx"
#: Rows per batch.
BATCH = 1000
#: Fields that are amounts in the currency of their row.
AMOUNTS = frozenset(
    {"amount", "amount_received", "refunded_amount", "fee", "net_amount", "available", "pending", "reserve", "hold",
     "debt"}
)  # fmt: skip
#: A spreadsheet runs a cell that begins with one of these as a formula, including the full-width forms.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001
#: Behind another separator a spreadsheet takes doubled quotes for an empty text and runs what follows.
_INNER = re.compile(r'([;\t|][\s"]*)([=+\-@＝＋－＠])')  # noqa: RUF001
_INNER_OR_COMMA = re.compile(r'([,;\t|][\s"]*)([=+\-@＝＋－＠])')  # noqa: RUF001
_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
#: The byte order mark, which tells spreadsheets that the text is UTF-8.
_BOM = "\ufeff"

#: The value of a cell. A Decimal is an amount, with its currency's decimals. A datetime has no zone.
Value = str | int | Decimal | datetime | date


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect of a CSV file. If a comma separates decimals, a semicolon separates cells."""

    decimals: str

    @property
    def cells(self) -> str:
        return ";" if self.decimals == "," else ","


_POINT, _COMMA = Dialect("."), Dialect(",")
_DIALECTS = {"csv-point": _POINT, "csv-comma": _COMMA}


def dialect(chosen: str) -> Dialect | None:
    """Return the dialect of a format, by default the active language's dialect. None if the format is not CSV."""
    if chosen in ("", "csv"):
        return _COMMA if decimal_separator() == "," else _POINT
    return _DIALECTS.get(chosen)


def has_xlsx() -> bool:
    """Return True if the extra ``xlsx`` is installed."""
    return find_spec("xlsxwriter") is not None


class ExportForm(forms.Form):
    """The choice of a format next to the button, as the parameter ``name``, with the list's own parameters."""

    def __init__(self, name: str, kept: QueryDict) -> None:
        super().__init__(auto_id="pi-export-%s")
        choices: list[tuple[str, StrOrPromise]] = [
            ("csv", _("CSV for this language")),
            ("csv-point", _("CSV with decimal point")),
            ("csv-comma", _("CSV with decimal comma")),
        ]
        if has_xlsx():
            choices.append((XLSX, _("Excel (.xlsx)")))
        self.fields[name] = forms.ChoiceField(
            choices=choices, widget=forms.Select(attrs={"aria-label": _("Format of the file")})
        )
        for other, values in kept.lists():
            self.fields[other] = forms.CharField(initial=values, widget=forms.MultipleHiddenInput)


def csv_response(
    request: HttpRequest, names: list[str], found: Iterable[list[list[Value]]], filename: str, written: Dialect
) -> StreamingHttpResponse:
    """Return a download: a line with the columns' ``names``, and the rows of these batches."""
    return download(request, _lines(names, found, written), f"{filename}.csv", "text/csv; charset=utf-8")


def headings(fields: list[str]) -> list[str]:
    """Return the first line of a file: the names of its fields, which are the same in every language."""
    return [name.replace("__", "_") for name in fields]


def records(rows: QuerySet[Any], order: Order, fields: list[str]) -> Iterator[list[list[Value]]]:
    """Yield all rows as the values of their cells, in batches."""
    has_currency = "currency" in fields

    def value(name: str, row: dict[str, Any]) -> Value:
        found = row[name]
        if isinstance(found, datetime):
            return _moment(found)
        if isinstance(found, date):
            return found
        if isinstance(found, bool) or not isinstance(found, int):
            return cell(found)
        return to_major(found, row["currency"]) if name in AMOUNTS and has_currency else found

    for batch in batches(rows, order, fields, size=BATCH):
        yield [[value(name, row) for name in fields] for row in batch]


def cell(value: Any) -> str:
    """Return a value as text for one cell: JSON in one line, and no text that a spreadsheet runs as a formula."""
    if value is None:
        return ""
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = str(value).encode("utf-8", "backslashreplace").decode().replace("\x00", "�")
    # Escape formulas after ";" too: a spreadsheet that splits there starts a new cell.
    text = _INNER.sub(r"\1'\2", _BREAKS.sub(" ", text))
    return f"'{text}" if text.startswith("\t") or text.lstrip().startswith(_FORMULA) else text


def batches(rows: QuerySet[Any], order: Order, fields: list[str], *, size: int) -> Iterator[list[dict[str, Any]]]:
    """Yield all rows as dicts of ``fields``, ``size`` at a time, each batch by its own statement.

    A server-side cursor needs a transaction for the whole download, which a connection pooler may not allow.
    """
    names = list(dict.fromkeys([*fields, *(key.name for key in order.keys)]))
    found = rows.order_by(*order.by).values(*names)
    page = list(found[:size])
    while page:
        yield page
        page = list(found.filter(order.after(order.place(page[-1])))[:size]) if len(page) == size else []


def _lines(names: list[str], found: Iterable[list[list[Value]]], written: Dialect) -> Iterator[str]:
    def text(value: Value) -> str:
        if isinstance(value, Decimal):
            return f"{value:f}".replace(".", written.decimals)
        if isinstance(value, str) and written.cells != ",":
            # Escape formulas after a comma too: a spreadsheet may open the file as if commas separated its cells.
            return _INNER_OR_COMMA.sub(r"\1'\2", value)
        return str(value)

    yield _BOM + _rows([names], written)
    for batch in found:
        yield _rows([list(map(text, row)) for row in batch], written)


def _moment(value: datetime) -> datetime:
    """Return a time to the second in the site's time zone. All users get the same, so that files can be compared."""
    return on_site(value).replace(microsecond=0, tzinfo=None)


def _rows(rows: list[list[str]], written: Dialect) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=written.cells).writerows(rows)
    return out.getvalue()
