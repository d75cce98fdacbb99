"""Find the paths of the project's views, and tell where a path leads."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any, NamedTuple

from django.conf import settings
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse
from django.utils import translation

from payments_integration import conf


def path_of(name: str, *, language: str = "", **arguments: Any) -> str:
    """Return the path of a view, in the site's language nearest to ``language``, or in LANGUAGE_CODE.

    A mail may be in a language that is not one of LANGUAGES, or be written while any other is active. Within
    ``i18n_patterns`` a path would begin with that language, and lead nowhere. ``arguments``: ``args`` or ``kwargs`` of
    ``reverse``. Raises NoReverseMatch.
    """
    with translation.override(_of_the_site(language)):
        return reverse(name, **arguments)


def webhook_path(account: str) -> str:
    """Return the path of the account's webhook view, as ``path_of`` does; "": the URLconf does not have it."""
    is_default = account == conf.DEFAULT_ACCOUNT
    name = "webhook" if is_default else "webhook-account"
    try:
        return path_of(f"payments_integration:{name}", kwargs={} if is_default else {"account": account})
    except NoReverseMatch:
        return ""


class Target(NamedTuple):
    #: The account whose deliveries the webhook view receives there; None: the URL leads elsewhere.
    account: str | None
    #: The name of the view; "": no view has this URL.
    view: str


def depends_on_language(name: str, **arguments: Any) -> bool:
    """Return True if the view is within ``i18n_patterns``: its path begins with a language. Raises NoReverseMatch."""
    paths = set()
    for language, _ in settings.LANGUAGES:
        with translation.override(language):
            paths.add(reverse(name, **arguments))
    return len(paths) > 1


def without_script_prefix(path: str) -> str:
    """Return the part of a path that URLconfs see: without FORCE_SCRIPT_NAME."""
    prefix = get_script_prefix()
    return f"/{path[len(prefix) :]}" if path.startswith(prefix) else path


def target(path: str) -> Target:
    """Return what answers a request for this path, in the language with which the path begins."""
    inside = without_script_prefix(path)
    try:
        with translation.override(translation.get_language_from_path(inside) or settings.LANGUAGE_CODE):
            match = resolve(inside)
    except Resolver404:
        return Target(None, "")
    # By name, because importing the view would import most of the app. A project may have decorated it.
    view = inspect.unwrap(match.func)
    is_ours = (view.__module__, getattr(view, "__name__", "")) == ("payments_integration.webhooks", "webhook")
    return Target(match.kwargs.get("account", conf.DEFAULT_ACCOUNT) if is_ours else None, match.view_name)


def _of_the_site(language: str) -> str:
    for code in (language, settings.LANGUAGE_CODE):
        with suppress(LookupError):
            return translation.get_supported_language_variant(code)
    return settings.LANGUAGE_CODE
