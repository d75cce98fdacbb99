"""A list as an Excel file, with real numbers and times. Needs the extra ``xlsx``.

openpyxl writes the sheet to a temporary file, row by row, and packs it after the last row. So memory stays flat, but
the download begins only then, within the time that the server gives a request: hence the limit of rows.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import IO, Any

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from openpyxl import Workbook
from openpyxl.cell import WriteOnlyCell
from openpyxl.utils import get_column_letter

from payments_integration.admin.lists.export import Value, download, headings, records
from payments_integration.db.keyset import Order

#: The most rows of a file: five seconds of work or so.
MAX_ROWS = 20_000
#: Excel keeps numbers as floats, which hold this many digits exactly, and knows no day before 1900.
_MAX_DIGITS = 15
_FIRST_YEAR = 1900
#: The most characters of a cell.
_MAX_TEXT = 32_767
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_TIME = "yyyy-mm-dd hh:mm:ss"
_WIDTH = 20
_PART = 64 * 1024
_CONTENT_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def is_too_long(rows: QuerySet[Any], order: Order) -> bool:
    """Whether there are more rows than a file may have."""
    return rows.order_by(*order.by)[MAX_ROWS : MAX_ROWS + 1].exists()


def xlsx_response(
    request: HttpRequest, rows: QuerySet[Any], order: Order, fields: list[str], filename: str
) -> StreamingHttpResponse:
    """A download with the ``fields`` of ``rows`` in ``order``."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the response)
    try:
        _write(file, rows, order, fields)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    response = download(request, _parts(file), f"{filename}.xlsx", _CONTENT_TYPE)
    # Also if the browser goes away before the first part.
    response._resource_closers.append(file.close)  # type: ignore[attr-defined]
    return response


def _write(file: IO[bytes], rows: QuerySet[Any], order: Order, fields: list[str]) -> None:
    book = Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.freeze_panes = "A2"
    for number in range(1, len(fields) + 1):
        sheet.column_dimensions[get_column_letter(number)].width = _WIDTH
    try:
        sheet.append(headings(fields))
        for batch in records(rows, order, fields):
            for row in batch:
                sheet.append([_cell(sheet, value) for value in row])
    except BaseException:
        # openpyxl would keep its temporary file until the process ends.
        with contextlib.suppress(Exception):
            sheet.close()
        sheet._writer.cleanup()
        raise
    book.save(file)


def _cell(sheet: Any, value: Value) -> Any:
    """A cell; None if it is empty. Text never becomes a formula, not even with ``=`` in front."""
    if value == "":
        return None
    if isinstance(value, datetime) and value.year >= _FIRST_YEAR:
        cell = WriteOnlyCell(sheet, value)
        cell.number_format = _TIME
        return cell
    if isinstance(value, Decimal) and len(value.as_tuple().digits) <= _MAX_DIGITS:
        cell = WriteOnlyCell(sheet, value)  # type: ignore[arg-type]
        decimals = max(0, -int(value.as_tuple().exponent))
        cell.number_format = f"#,##0.{'0' * decimals}" if decimals else "#,##0"
        return cell
    if isinstance(value, int) and len(str(abs(value))) <= _MAX_DIGITS:
        return WriteOnlyCell(sheet, value)
    cell = WriteOnlyCell(
        sheet, _NOT_XML.sub("�", f"{value:f}" if isinstance(value, Decimal) else str(value))[:_MAX_TEXT]
    )
    cell.data_type = "s"
    return cell


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    while part := file.read(_PART):
        yield part
