"""Find paths of the project's views that work in any language."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils import translation


def path_of(name: str, *, language: str = "", **arguments: Any) -> str:
    """Return the path of a view, in the site's language nearest to ``language``, or in LANGUAGE_CODE.

    A mail may be in a language that is not one of LANGUAGES, or be written while any other is active. Within
    ``i18n_patterns`` a path would begin with that language, and lead nowhere. ``arguments``: ``args`` or ``kwargs`` of
    ``reverse``. Raises NoReverseMatch.
    """
    with translation.override(_of_the_site(language)):
        return reverse(name, **arguments)


def _of_the_site(language: str) -> str:
    for code in (language, settings.LANGUAGE_CODE):
        with suppress(LookupError):
            return translation.get_supported_language_variant(code)
    return settings.LANGUAGE_CODE
