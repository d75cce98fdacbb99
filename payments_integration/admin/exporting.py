"""A list as CSV: all of its rows, one batch in memory at a time."""

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

from payments_integration.admin.paging import Order, batches
from payments_integration.money import to_major

#: Rows in memory at a time.
BATCH = 1000
#: Fields that are amounts in the currency of their row.
AMOUNTS = frozenset(
    {"amount", "amount_received", "refunded_amount", "fee", "net_amount", "available", "pending", "reserve", "hold",
     "debt"}
)  # fmt: skip
#: Spreadsheets take what begins so for a formula, and run it.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001  (they do so with these too)
_INNER = re.compile(r"([;\t|]\s*)([=+\-@＝＋－＠])")  # noqa: RUF001
_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
#: Tells spreadsheets that the text is UTF-8.
_BOM = "\ufeff"


def response(
    request: HttpRequest, rows: QuerySet[Any], order: Order, fields: list[str], filename: str
) -> StreamingHttpResponse:
    """``fields`` of ``rows`` in ``order``, as a download."""
    lines = _lines(rows, order, fields)
    # Served asynchronously, Django would gather a plain iterator before it sends the first byte.
    content: Any = _threaded(lines) if isinstance(request, ASGIRequest) else lines
    answer = StreamingHttpResponse(content, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{filename}"'
    answer["Cache-Control"] = "no-store"
    return answer


def cell(value: Any) -> str:
    """A value as it stands in the file: JSON in one line, and nothing that a spreadsheet would run."""
    if value is None:
        return ""
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = str(value).encode("utf-8", "backslashreplace").decode().replace("\x00", "�")
    # Where ";" parts the cells of a file, what stands behind it in ours begins a cell there.
    text = _INNER.sub(r"\1'\2", _BREAKS.sub(" ", text))
    return f"'{text}" if text.startswith("\t") or text.lstrip().startswith(_FORMULA) else text


def _lines(rows: QuerySet[Any], order: Order, fields: list[str]) -> Iterator[str]:
    # As the person sees it, also when the response is written after the request is over.
    zone = timezone.get_current_timezone()
    has_currency = "currency" in fields

    def written(row: dict[str, Any]) -> Iterator[str]:
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
            yield _rows([list(written(row)) for row in batch])

    return generate()


def _moment(value: datetime, zone: tzinfo) -> str:
    return (value.astimezone(zone) if timezone.is_aware(value) else value).isoformat()


def _rows(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


async def _threaded(lines: Iterator[str]) -> AsyncIterator[str]:
    following: Callable[[], Any] = sync_to_async(lambda: next(lines, None))
    while (part := await following()) is not None:
        yield part
