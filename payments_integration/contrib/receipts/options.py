"""Read and check the setting ``PAYMENTS_RECEIPT_MAIL``, which turns receipts by mail on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from payments_integration.validation.urls import is_secure_url

NAME = "PAYMENTS_RECEIPT_MAIL"
_OPTIONS = ("SITE_URL", "FROM")


def is_on() -> bool:
    """Return True if the setting exists, even if it is wrong."""
    return getattr(settings, NAME, None) is not None


def current() -> Mapping[str, str] | None:
    """Return the setting, or None if it is missing. Raises ImproperlyConfigured if it is wrong."""
    given: Mapping[str, str] | None = getattr(settings, NAME, None)
    if found := "; ".join(_problems(given)):
        raise ImproperlyConfigured(found)
    return given


def check_setting(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report errors in the setting."""
    return [checks.Error(text, id="payments_integration.E042") for text in _problems(getattr(settings, NAME, None))]


def _problems(given: Any) -> Iterator[str]:
    if given is None:
        return
    if not isinstance(given, Mapping):
        yield f"{NAME} must be a dictionary"
        return
    for name in given:
        if name not in _OPTIONS:
            yield f"{NAME} has no option {name!r}; it has {' and '.join(_OPTIONS)}"
    site, sender = given.get("SITE_URL", ""), given.get("FROM", "")
    if site and not (isinstance(site, str) and is_secure_url(site)):
        yield f'{NAME}["SITE_URL"] must be an https:// URL'
    if not isinstance(sender, str) or "\n" in sender or "\r" in sender:
        yield f'{NAME}["FROM"] must be an e-mail address'
