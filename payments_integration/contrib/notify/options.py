"""Read and check the setting ``PAYMENTS_NOTIFY``."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import validate_email

from payments_integration.validation.urls import is_secure_url

NAME = "PAYMENTS_NOTIFY"


@dataclass(frozen=True, slots=True)
class Options:
    """Every option with its default. The repr hides the chat's URL, which is a secret."""

    #: The e-mail addresses that get notices.
    MAIL_TO: tuple[str, ...] = ()
    #: An incoming webhook that accepts ``{"text": …}``: Slack, Mattermost, Rocket.Chat, Google Chat.
    CHAT_URL: str = field(default="", repr=False)
    #: The site's scheme and host for links to the admin, such as "https://shop.example".
    SITE_URL: str = ""


def current() -> Options:
    """Return the options. Raises ImproperlyConfigured if one of them is wrong."""
    given = getattr(settings, NAME, {})
    if found := "; ".join(_problems(given)):
        raise ImproperlyConfigured(found)
    return Options(**{**given, "MAIL_TO": tuple(given.get("MAIL_TO", ()))})


def _problems(given: Any) -> Iterator[str]:
    if not isinstance(given, Mapping):
        yield f"{NAME} must be a dictionary"
        return
    known = [option.name for option in fields(Options)]
    for name in given:
        if name not in known:
            alike = difflib.get_close_matches(str(name), known, n=1)
            yield f"{NAME} has no option {name!r}" + (f"; did you mean {alike[0]!r}?" if alike else "")
    addresses = given.get("MAIL_TO", ())
    if not isinstance(addresses, list | tuple) or not all(map(_is_address, addresses)):
        yield f'{NAME}["MAIL_TO"] must be a list of e-mail addresses'
    for name in ("CHAT_URL", "SITE_URL"):
        url = given.get(name, "")
        if url and not (isinstance(url, str) and is_secure_url(url)):
            yield f'{NAME}["{name}"] must be an https:// URL'


def _is_address(value: Any) -> bool:
    try:
        validate_email(value)
    except ValidationError:
        return False
    return True


def check_setting(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report errors in the setting, and warn if no channel is set."""
    given = getattr(settings, NAME, {})
    errors: list[checks.CheckMessage] = [
        checks.Error(text, id="payments_integration.E041") for text in _problems(given)
    ]
    if not errors and not (given.get("MAIL_TO") or given.get("CHAT_URL")):
        text = f"{NAME} names neither MAIL_TO nor CHAT_URL, so payments_integration.contrib.notify sends nothing"
        return [checks.Warning(text, id="payments_integration.W040")]
    return errors
