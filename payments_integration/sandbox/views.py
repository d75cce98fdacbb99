"""The Django view over the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.http import HttpRequest, HttpResponse

from .web import engine_of, query
from .wire import ApiRequest

LINE_KEY: Final = "payments_sandbox.line"


def api(request: HttpRequest, operations: Mapping[str, str], object_id: str = "") -> HttpResponse:
    """Any path under ``/v1``; ``operations`` maps HTTP methods to operations, empty: nothing there."""
    answer = engine_of(request).handle(
        ApiRequest(
            method=request.method or "",
            path=request.path_info,
            query=query(request),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=request.read(),
            operations=operations,
            object_id=object_id,
        )
    )
    response = HttpResponse(answer.body, status=answer.status, headers=answer.headers)
    request.META[LINE_KEY] = answer.line
    return response
