"""Caches that projects have: values for ``settings.CACHES``."""

from __future__ import annotations

import json
from typing import Any

from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.serializers.json import DjangoJSONEncoder


class Down(BaseCache):
    """A cache whose server does not answer. The methods for many keys call these."""

    def __init__(self, _location: str, params: dict[str, Any]) -> None:
        super().__init__(params)

    def _fail(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("the cache does not answer")

    add = get = set = _fail


class Json(LocMemCache):
    """A cache that serializes as JSON, as django-redis can."""

    def set(self, key: Any, value: Any, *args: Any, **kwargs: Any) -> None:
        super().set(key, json.dumps(value, cls=DjangoJSONEncoder), *args, **kwargs)

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        kept = super().get(key, None, version)
        return default if kept is None else json.loads(kept)


DOWN = {"default": {"BACKEND": "tests.caches.Down"}}
JSON = {"default": {"BACKEND": "tests.caches.Json", "LOCATION": "json"}}
