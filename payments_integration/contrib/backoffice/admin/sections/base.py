"""Provide the page of a row in the back office: a headline, sections above and beside the fields, and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst

from payments_integration import conf
from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Page, Section
from payments_integration.contrib.backoffice.admin.menu import MenuAdmin


class SectionsAdmin(MenuAdmin):
    """A page with sections around the fields. A subclass names it before the core's ModelAdmin."""

    change_form_template: ClassVar[Any] = "admin/payments_backoffice/change_form.html"

    def headline(self, page: Page, obj: Any) -> Iterable[str]:
        """Yield the row in one line, for instance its amount, status, person and order. Empty parts are left out."""
        return ()

    def whose(self, page: Page, obj: Any) -> Iterable[str]:
        """Yield the amount and the person as plain text for the title of the browser tab. Empty parts are left out."""
        return ()

    def lead(self, page: Page, obj: Any) -> Iterable[Section]:
        """Yield the sections above the fields."""
        return ()

    def aside(self, page: Page, obj: Any) -> Iterable[Section]:
        """Yield the sections beside all others: the money and whose it is. On narrow screens, they come first."""
        return ()

    def details(self, page: Page, obj: Any) -> Iterable[Section]:
        """Yield the sections between the story and the records."""
        return ()

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        if obj is not None:
            page = Page(display.seen(self.admin_site, request), request)
            context["pi_headline"] = [part for part in self.headline(page, obj) if part and part != display.EMPTY]
            if context["pi_headline"]:
                # Each account has its own money.
                context["pi_headline"] += [conf.account_name(obj.account)] if len(conf.aliases()) > 1 else []
                # No subtitle, because the breadcrumbs already show the id.
                context["subtitle"] = None
            whose = [part for part in self.whose(page, obj) if part and part != display.EMPTY]
            if whose:
                context["pi_title"] = " · ".join([*whose, capfirst(str(self.opts.verbose_name))])
            context["pi_aside"] = list(self.aside(page, obj))
            context["pi_lead"] = list(self.lead(page, obj))
        return super().render_change_form(request, context, *args, **kwargs)
