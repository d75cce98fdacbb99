"""Send a file part by part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse


def download(
    request: HttpRequest, parts: Iterator[str] | Iterator[bytes], filename: str, content_type: str
) -> StreamingHttpResponse:
    """Return a response that sends a file part by part."""
    # Under ASGI, Django reads a synchronous iterator to its end before it sends the first byte.
    content: Any = _in_threads(parts) if isinstance(request, ASGIRequest) else parts
    response = StreamingHttpResponse(content, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["Cache-Control"] = "no-store"
    return response


async def _in_threads(parts: Iterator[Any]) -> AsyncIterator[Any]:
    next_part: Callable[[], Any] = sync_to_async(lambda: next(parts, None))
    while (part := await next_part()) is not None:
        yield part
