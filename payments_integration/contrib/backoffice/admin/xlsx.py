"""Export a list as an Excel file, with real numbers and times. Needs the extra ``xlsx``.

XlsxWriter writes the sheet to a temporary file, row by row, and packs it after the last row. So memory use stays
constant, but the download begins only after the last row. The number of rows is limited, because servers limit the
time of a request.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import IO, Any

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from xlsxwriter import Workbook

from payments_integration.contrib.backoffice.admin.downloads import download
from payments_integration.contrib.backoffice.admin.export import Value
from payments_integration.db.keyset import Order

#: The most rows of a file, which take about five seconds.
MAX_ROWS = 20_000
#: Excel keeps numbers as floats, which hold this many digits exactly, and knows no day before 1900.
_MAX_DIGITS = 15
_FIRST_YEAR = 1900
#: The most characters in a cell.
_MAX_TEXT = 32_767
#: XlsxWriter takes such text for XML, and does not escape it.
_RICH = re.compile(r"<r>.*</r>", re.DOTALL)
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_TIME, _DATE = "yyyy-mm-dd hh:mm:ss", "yyyy-mm-dd"
_WIDTH = 20
_PART = 64 * 1024
_CONTENT_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def is_too_long(rows: QuerySet[Any], order: Order) -> bool:
    """Return True if there are more rows than a file may have."""
    return rows.order_by(*order.by)[MAX_ROWS : MAX_ROWS + 1].exists()


def xlsx_response(
    request: HttpRequest, names: list[str], found: Iterable[list[list[Value]]], filename: str
) -> StreamingHttpResponse:
    """Return a download: a row with the columns' ``names``, and the rows of these batches."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the response)
    try:
        _write(file, names, found)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    response = download(request, _parts(file), f"{filename}.xlsx", _CONTENT_TYPE)
    # Close the file with the response, even if the browser disconnects before the first part.
    response._resource_closers.append(file.close)  # type: ignore[attr-defined]
    return response


def _write(file: IO[bytes], names: list[str], found: Iterable[list[list[Value]]]) -> None:
    # Use a separate folder, because XlsxWriter does not delete its temporary files if it fails.
    with tempfile.TemporaryDirectory() as folder:
        book = Workbook(file, {"constant_memory": True, "tmpdir": folder})
        try:
            sheet = _Sheet(book, columns=len(names))
            sheet.append(names)
            for batch in found:
                for row in batch:
                    sheet.append(row)
        except BaseException:
            # Close the book only to close its files. The packed file is discarded.
            with contextlib.suppress(Exception):
                book.close()
            raise
        book.close()


class _Sheet:
    """The only sheet of a book. Each cell's kind is given, so text never becomes a formula, a link or a number."""

    def __init__(self, book: Workbook, *, columns: int) -> None:
        self._sheet: Any = book.add_worksheet()
        self._sheet.freeze_panes(1, 0)
        self._sheet.set_column(0, columns - 1, _WIDTH)
        self._format: Callable[[str], Any] = cache(lambda pattern: book.add_format({"num_format": pattern}))
        self._rows = 0

    def append(self, values: Iterable[Value]) -> None:
        for column, value in enumerate(values):
            if value != "":
                self._cell(self._rows, column, value)
        self._rows += 1

    def _cell(self, row: int, column: int, value: Value) -> None:
        if isinstance(value, date) and value.year >= _FIRST_YEAR:
            pattern = _TIME if isinstance(value, datetime) else _DATE
            self._sheet.write_datetime(row, column, value, self._format(pattern))
        elif isinstance(value, Decimal) and len(value.as_tuple().digits) <= _MAX_DIGITS:
            decimals = max(0, -int(value.as_tuple().exponent))
            pattern = f"#,##0.{'0' * decimals}" if decimals else "#,##0"
            self._sheet.write_number(row, column, value, self._format(pattern))
        elif isinstance(value, int) and len(str(abs(value))) <= _MAX_DIGITS:
            self._sheet.write_number(row, column, value)
        else:
            text = _NOT_XML.sub("�", f"{value:f}" if isinstance(value, Decimal) else str(value))
            self._sheet.write_string(row, column, ("'" + text if _RICH.fullmatch(text) else text)[:_MAX_TEXT])


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    while part := file.read(_PART):
        yield part
