"""The OpenAPI description, for those whom the permission classes let in. It holds no data."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer, OpenApiYamlRenderer2
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import conf
from payments_integration.api.calls import Call
from payments_integration.api.description import describe
from payments_integration.api.negotiation import JSONRenderer
from payments_integration.api.representations import ErrorSerializer
from payments_integration.api.views.base import ApiView


class SchemaView(ApiView):
    """Not part of the description. YAML by ``Accept: application/yaml``."""

    renderer_classes = [JSONRenderer, OpenApiJsonRenderer, OpenApiYamlRenderer, OpenApiYamlRenderer2]
    patterns: ClassVar[tuple[Any, ...]] = ()
    calls = {
        "GET": Call(id="get_schema", summary="Show this description", needs="", customers=True, gives=ErrorSerializer)
    }

    def get(self, request: Request) -> Response:
        self.asked()
        base = request.path.removesuffix("schema/").rstrip("/")
        return Response(_described(self.patterns, base, tuple(conf.current().API_AUTHENTICATION_CLASSES)))


@lru_cache(maxsize=8)
def _described(patterns: tuple[Any, ...], base: str, authentication: tuple[str, ...]) -> dict[str, Any]:
    """Made once: it takes a moment, and nothing else changes it."""
    return describe(patterns, base)
