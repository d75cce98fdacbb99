"""Provide tags and filters for the admin's templates: the test badge and times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.utils.timezone import get_default_timezone_name

from payments_integration import conf, dates

register = template.Library()


@register.simple_tag
def payments_site_zone() -> str:
    """Return the name of the time zone in which the admin's pages show times."""
    return get_default_timezone_name()


@register.inclusion_tag("admin/payments_integration/includes/test_badge.html", takes_context=True)
def payments_test_badge(context: Context) -> dict[str, Any]:
    """Show a badge if the page's account has a test key. On pages about no account: if any account has one.

    If only some accounts have a test key, the badge names them. Runs no query.
    """
    configured = conf.current().ACCOUNTS
    about = getattr(context.get("original"), "account", None) or context.get("account") or None
    asked = [about] if isinstance(about, str) and about in configured else [] if about else list(configured)
    found = [alias for alias in asked if conf.is_test(alias)]
    names = [conf.account_name(alias) for alias in found] if len(found) < len(asked) else []
    return {"accounts": found, "names": names}


@register.filter
def payments_moment(at: datetime) -> str:
    """Return a time as the admin's pages show it."""
    return dates.moment(at)
