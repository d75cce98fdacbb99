"""A list as CSV: all rows, with one batch in memory at a time."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, tzinfo
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from payments_integration.db.keyset import Order
from payments_integration.money import to_major

#: Rows per batch.
BATCH = 1000
#: Fields that are amounts in the currency of their row.
AMOUNTS = frozenset(
    {"amount", "amount_received", "refunded_amount", "fee", "net_amount", "available", "pending", "reserve", "hold",
     "debt"}
)  # fmt: skip
#: A spreadsheet runs a cell that begins with one of these as a formula, the full-width forms included.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001
_INNER = re.compile(r"([;\t|]\s*)([=+\-@＝＋－＠])")  # noqa: RUF001
_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
#: Tells spreadsheets that the text is UTF-8.
_BOM = "\ufeff"


def csv_response(
    request: HttpRequest, rows: QuerySet[Any], order: Order, fields: list[str], filename: str
) -> StreamingHttpResponse:
    """A download with the ``fields`` of ``rows`` in ``order``."""
    return download(request, _lines(rows, order, fields), filename, "text/csv; charset=utf-8")


def download(request: HttpRequest, lines: Iterator[str], filename: str, content_type: str) -> StreamingHttpResponse:
    """A file that is sent as it is made."""
    # Under ASGI, Django would read a synchronous iterator to its end before it sends the first byte.
    content: Any = _in_threads(lines) if isinstance(request, ASGIRequest) else lines
    response = StreamingHttpResponse(content, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["Cache-Control"] = "no-store"
    return response


def cell(value: Any) -> str:
    """A value as text for one cell: JSON in one line, and nothing that a spreadsheet would run as a formula."""
    if value is None:
        return ""
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = str(value).encode("utf-8", "backslashreplace").decode().replace("\x00", "�")
    # A spreadsheet that splits at ";" would start a new cell after it.
    text = _INNER.sub(r"\1'\2", _BREAKS.sub(" ", text))
    return f"'{text}" if text.startswith("\t") or text.lstrip().startswith(_FORMULA) else text


def batches(rows: QuerySet[Any], order: Order, fields: list[str], *, size: int) -> Iterator[list[dict[str, Any]]]:
    """All rows as dicts of ``fields``, ``size`` at a time, each batch by its own statement.

    A server-side cursor would need a transaction for the whole download, which a connection pooler may not allow.
    """
    names = list(dict.fromkeys([*fields, *(key.name for key in order.keys)]))
    found = rows.order_by(*order.by).values(*names)
    page = list(found[:size])
    while page:
        yield page
        page = list(found.filter(order.after(order.place(page[-1])))[:size]) if len(page) == size else []


def _lines(rows: QuerySet[Any], order: Order, fields: list[str]) -> Iterator[str]:
    # Read now: the response is written after the request's time zone is reset.
    zone = timezone.get_current_timezone()
    has_currency = "currency" in fields

    def cells(row: dict[str, Any]) -> Iterator[str]:
        for name in fields:
            value = row[name]
            if isinstance(value, datetime):
                yield _moment(value, zone)
            elif name in AMOUNTS and has_currency and value is not None:
                yield f"{to_major(value, row['currency']):f}"
            else:
                yield cell(value)

    def generate() -> Iterator[str]:
        yield _BOM + _rows([[name.replace("__", "_") for name in fields]])
        for batch in batches(rows, order, fields, size=BATCH):
            yield _rows([list(cells(row)) for row in batch])

    return generate()


def _moment(value: datetime, zone: tzinfo) -> str:
    return (value.astimezone(zone) if timezone.is_aware(value) else value).isoformat()


def _rows(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


async def _in_threads(lines: Iterator[str]) -> AsyncIterator[str]:
    next_part: Callable[[], Any] = sync_to_async(lambda: next(lines, None))
    while (part := await next_part()) is not None:
        yield part
