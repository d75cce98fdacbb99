"""Kinds of values in answers, with their OpenAPI types."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.drainage import set_override
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers


@extend_schema_field({"type": "integer", "format": "int64"})
class Amount(serializers.IntegerField):
    """Minor units."""


@extend_schema_field({"type": "string", "format": "date-time"})
class Moment(serializers.DateTimeField):
    """ISO 8601 in UTC, whatever the project has set for its own API."""

    def to_representation(self, value: datetime) -> str:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


@extend_schema_field({"type": "object", "additionalProperties": True})
class Object(serializers.JSONField):
    """What the provider sent, as it came."""


class Constant(serializers.Field[str, str, str, Any]):
    """``object``: what kind of thing this is."""

    def __init__(self, value: str) -> None:
        self.value = value
        super().__init__(source="*")
        set_override(self, "field", {"type": "string", "enum": [value]})

    def __deepcopy__(self, memo: dict[int, Any]) -> Constant:
        return Constant(self.value)

    def to_representation(self, value: Any) -> str:
        return self.value
