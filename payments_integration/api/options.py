"""What a project may replace, as the setting names it now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

from payments_integration import conf


def classes(option: str) -> list[type[Any]]:
    """The classes of an option, such as API_PERMISSION_CLASSES. Importing twice costs a look-up.

    Raises ImportError for a wrong path; the system checks say so before (E014).
    """
    return [import_string(path) for path in getattr(conf.current(), option)]


def queryset_function() -> Callable[[Any, Any], Any]:
    function: Callable[[Any, Any], Any] = import_string(conf.current().API_QUERYSET)
    return function
