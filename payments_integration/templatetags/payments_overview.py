"""The overview, for the page of the app in the admin."""

from __future__ import annotations

from typing import Any

from django import template
from django.contrib import admin
from django.contrib.admin.sites import all_sites
from django.http import HttpRequest

from payments_integration.admin.overview import Overview
from payments_integration.admin.panels import SCRIPTS, STYLES

register = template.Library()


@register.inclusion_tag("admin/payments_integration/includes/overview.html", takes_context=True)
def payments_overview(context: template.Context) -> dict[str, Any]:
    """What needs a hand, and how the money went, of one account; as far as this user may see it."""
    request: HttpRequest = context["request"]
    # A project may have several sites, and none of them is in the context.
    name = getattr(request, "current_app", "")
    site = next((site for site in all_sites if site.name == name), admin.site)
    return Overview(site, request).context()


@register.simple_tag
def payments_chart_scripts() -> tuple[str, ...]:
    return SCRIPTS


@register.simple_tag
def payments_chart_styles() -> tuple[str, ...]:
    return STYLES
