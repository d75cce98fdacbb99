"""Show the menu, and the overview on the index page of the core's app in the admin.

Django imports every tag library when it builds a template engine, even if the admin is not installed. So the tags
import the admin only when they are used.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.http import HttpRequest

register = template.Library()


@register.inclusion_tag("admin/payments_backoffice/includes/dashboard.html", takes_context=True)
def payments_dashboard(context: template.Context) -> dict[str, Any]:
    """Return the overview of one account, as far as this user may see it."""
    from payments_integration.contrib.backoffice.admin.menu import current_site  # noqa: PLC0415
    from payments_integration.contrib.backoffice.admin.overview.page import Dashboard  # noqa: PLC0415

    request: HttpRequest = context["request"]
    return Dashboard(current_site(request), request).context()


@register.inclusion_tag("admin/payments_backoffice/includes/menu.html", takes_context=True)
def payments_menu(context: template.Context) -> dict[str, Any]:
    """Show the menu of our pages, and the search field."""
    from payments_integration.contrib.backoffice.admin.menu import menu  # noqa: PLC0415

    found: Any = context.flatten()
    return menu(found)
