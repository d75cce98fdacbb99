"""The menu, and times, in the templates of the admin."""

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
    """The name of the time zone in which the admin's pages show times."""
    return get_default_timezone_name()


@register.inclusion_tag("admin/payments_integration/includes/test_badge.html", takes_context=True)
def payments_test_badge(context: Context) -> dict[str, Any]:
    """A badge if the account that the page is about has a test key; on other pages, if any account has one.

    No statement. If only some accounts of a list have a test key, the badge names them.
    """
    configured = conf.current().ACCOUNTS
    about = getattr(context.get("original"), "account", None) or context.get("account") or None
    asked = [about] if isinstance(about, str) and about in configured else [] if about else list(configured)
    found = [alias for alias in asked if conf.is_test(alias)]
    names = [conf.account_name(alias) for alias in found] if len(found) < len(asked) else []
    return {"accounts": found, "names": names}


@register.inclusion_tag("admin/payments_integration/includes/menu.html", takes_context=True)
def payments_menu(context: Context) -> dict[str, Any]:
    """The menu of our pages, and the field of the search."""
    # Django imports every tag library, also where the admin is not installed.
    from payments_integration.admin.shared.menu import menu  # noqa: PLC0415

    found: Any = context.flatten()
    return menu(found)


@register.filter
def payments_moment(at: datetime) -> str:
    """A time as the admin's pages show it."""
    return dates.moment(at)
