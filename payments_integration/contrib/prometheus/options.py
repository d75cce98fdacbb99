"""Read and check the setting ``PAYMENTS_METRICS_TOKEN``. A client that sends it may read the metrics over HTTP."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import checks

NAME = "PAYMENTS_METRICS_TOKEN"
#: In characters. A shorter token could be guessed.
MIN_LENGTH = 16


def token() -> str:
    """Return the token, or "" if it is missing or cannot be used."""
    value = getattr(settings, NAME, "")
    return value if not _problem(value) else ""


def _problem(value: Any) -> str:
    if value in ("", None):
        return ""
    if not isinstance(value, str) or not (value.isascii() and value.isprintable()) or " " in value:
        return f"{NAME} must be a text of visible ASCII characters"
    if len(value) < MIN_LENGTH:
        return f"{NAME} must have at least {MIN_LENGTH} characters"
    return ""


def check_setting(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report an error in the setting. A missing token is no error: the view then refuses every request and says so."""
    text = _problem(getattr(settings, NAME, ""))
    hint = "Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
    return [checks.Error(text, hint=hint, id="payments_integration.E050")] if text else []
