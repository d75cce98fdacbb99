"""Build the menu above every page of ours: the places where staff work, and the technical pages under one entry.

Django's menu lists the models of each app in the order of their names. Only an AdminSite of the project can change
that. Themes have menus of their own, so this menu is a part of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, cast

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.admin.sites import all_sites
from django.db.models import Model
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.shared import display
from payments_integration.validation.text import StrOrPromise

APP = "payments_integration"


class Place(IntEnum):
    """The order of the menu."""

    OVERVIEW = 0
    TODO = 1
    PAYMENTS = 2
    REFUNDS = 3
    PAYOUTS = 4
    DEPOSITS = 5
    BALANCES = 6
    CASH_BOOK = 7
    TECHNICAL = 8


class Entry(NamedTuple):
    place: Place
    label: StrOrPromise
    url: str
    #: Pages about this model belong to the entry.
    model: type[Model] | None = None


class MenuAdmin(ReadOnlyAdmin):
    """A ModelAdmin whose pages have the menu, and whose list may be an entry of it."""

    head_template = "admin/payments_backoffice/includes/head.html"
    #: The list's place in the menu; None: not in the menu. ``menu_label`` is its name, if not the name of the model.
    menu_place: Place | None = None
    menu_label: StrOrPromise = ""

    def menu_entries(self, request: HttpRequest) -> Iterable[Entry]:
        """Yield the menu's entries for the pages of this model that the user may see."""
        if self.menu_place is not None and self.has_view_permission(request):
            label = self.menu_label or capfirst(str(self.opts.verbose_name_plural))
            yield Entry(self.menu_place, label, display.list_url(self.admin_site, self.model), self.model)

    def search_url(self, request: HttpRequest) -> str:
        """Return the URL of the search page, which every page's search field opens; empty if this model has none."""
        return ""


def current_site(request: HttpRequest) -> AdminSite:
    """Return the admin site that shows the page. A project may have several."""
    # Django marks the views of a site. A name would not do: a project's own site may be called "admin" too.
    view = getattr(request.resolver_match, "func", None)
    marked = getattr(view, "model_admin", view)
    name = getattr(request, "current_app", "")
    found = getattr(marked, "admin_site", None) or next((site for site in all_sites if site.name == name), admin.site)
    return cast("AdminSite", found)


def menu(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context of the menu's template. It has only what the user may see. Takes no queries."""
    request: HttpRequest = context["request"]
    ours = [found for found in current_site(request)._registry.values() if isinstance(found, MenuAdmin)]
    entries = [*_overview(context), *(entry for found in ours for entry in found.menu_entries(request))]
    entries.sort(key=lambda entry: (entry.place, str(entry.label)))
    is_search = "searched" in context
    current = None if is_search else _current(entries, context, request)
    shown = [(entry, entry is current) for entry in entries]
    return {
        "entries": [pair for pair in shown if pair[0].place != Place.TECHNICAL],
        "technical": [pair for pair in shown if pair[0].place == Place.TECHNICAL],
        "is_technical": current is not None and current.place == Place.TECHNICAL,
        # The search page has its own field.
        "search_url": "" if is_search else next(filter(None, (found.search_url(request) for found in ours)), ""),
    }


def _overview(context: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the entry of the overview; none for users who may view nothing in the app.

    The admin has no app index for them.
    """
    for app in context.get("available_apps") or ():
        if app["app_label"] == APP:
            yield Entry(Place.OVERVIEW, _("Overview"), app["app_url"])


def _current(entries: Iterable[Entry], context: Mapping[str, Any], request: HttpRequest) -> Entry | None:
    exact = next((entry for entry in entries if entry.url == request.path), None)
    model = getattr(context.get("opts"), "model", None)
    return exact or next((entry for entry in entries if model is not None and entry.model is model), None)
