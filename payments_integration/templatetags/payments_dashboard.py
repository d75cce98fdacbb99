"""The dashboard, for the app's index page in the admin.

Django imports every tag library when it builds a template engine, also where the admin is not installed. So the tags
import the admin when they are used.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.http import HttpRequest

register = template.Library()


@register.inclusion_tag("admin/payments_integration/includes/dashboard.html", takes_context=True)
def payments_dashboard(context: template.Context) -> dict[str, Any]:
    """The dashboard of one account, as far as this user may see it."""
    from django.contrib import admin  # noqa: PLC0415
    from django.contrib.admin.sites import all_sites  # noqa: PLC0415

    from payments_integration.admin.dashboard.page import Dashboard  # noqa: PLC0415

    request: HttpRequest = context["request"]
    # A project may have several sites; the request names the current one.
    name = getattr(request, "current_app", "")
    site = next((site for site in all_sites if site.name == name), admin.site)
    return Dashboard(site, request).context()


@register.simple_tag
def payments_chart_scripts() -> tuple[str, ...]:
    from payments_integration.admin.shared.sections import SCRIPTS  # noqa: PLC0415

    return SCRIPTS


@register.simple_tag
def payments_chart_styles() -> tuple[str, ...]:
    from payments_integration.admin.shared.sections import STYLES  # noqa: PLC0415

    return STYLES
