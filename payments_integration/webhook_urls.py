"""Tell where a URL of the project leads: to the webhook view of an account, or to another view."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from django.urls import NoReverseMatch, Resolver404, resolve, reverse

from payments_integration import conf


class Target(NamedTuple):
    #: The account whose deliveries the webhook view receives there; None: the URL leads elsewhere.
    account: str | None
    #: The name of the view; "": no view has this URL.
    view: str


def target(path: str) -> Target:
    """Return what answers a request for this path."""
    try:
        match = resolve(path)
    except Resolver404:
        return Target(None, "")
    # By name, because importing the view would import most of the app. A project may have decorated it.
    view = inspect.unwrap(match.func)
    is_ours = (view.__module__, getattr(view, "__name__", "")) == ("payments_integration.webhooks", "webhook")
    return Target(match.kwargs.get("account", conf.DEFAULT_ACCOUNT) if is_ours else None, match.view_name)


def path_of(account: str) -> str:
    """Return the path of the account's webhook view, in the active language; "": the URLconf does not have it."""
    is_default = account == conf.DEFAULT_ACCOUNT
    name = "webhook" if is_default else "webhook-account"
    try:
        return reverse(f"payments_integration:{name}", kwargs={} if is_default else {"account": account})
    except NoReverseMatch:
        return ""
