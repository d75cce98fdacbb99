"""A model's list: what it shows to whom, what can be searched for, and the same as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import DateTimeField, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.timezone import localdate
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.admin import columns, display, filters, on_demand, searching
from payments_integration.admin.buttons import Tool, may
from payments_integration.admin.paging import AFTER, BEFORE, KeysetChangeList

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class ListAdmin(_ModelAdmin):
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    empty_value_display = display.EMPTY
    #: Large fields that lists do not show.
    list_defer: tuple[str, ...] = ()
    #: Shown fields and columns that hold personal data: masked for those who may not see it.
    personal: tuple[str, ...] = ()
    #: Times whose age a list tells too.
    aged: tuple[str, ...] = ()
    #: What a CSV file of the list holds, and what of it is personal and left out for those who may not see it.
    export: tuple[str, ...] = ()
    export_personal: tuple[str, ...] = ()

    def sees_personal(self, request: HttpRequest) -> bool:
        """Whether the user may see personal data of payers and recipients."""
        return may(request, "view_personal_data")

    def url_name(self, name: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{name}"

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        """Links to further pages, shown over the list."""
        return ()

    # Columns

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        # With one account its name tells nothing.
        several = len(conf.aliases()) > 1 or self.opts.pk.name == "account"
        shown = self._masking(request, self._list_column)
        return tuple(shown(name) for name in self.list_display if several or name != "account")

    def get_sortable_by(self, request: HttpRequest) -> Any:
        return None if self.sortable_by is None else [self._list_column(name) for name in self.sortable_by]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        shown = self._masking(request, self._column)
        return [
            (title, {**options, "fields": tuple(map(shown, options["fields"]))})
            for title, options in super().get_fieldsets(request, obj)
        ]

    def _masking(self, request: HttpRequest, shown: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What shows a field or column to this user; ``shown``: what does to those who may see everything."""
        if self.sees_personal(request):
            return shown
        return lambda name: columns.masked(self, name) if name in self.personal else shown(name)

    def _list_column(self, name: Any) -> Any:
        return columns.aged(self.opts, name) if name in self.aged else self._column(name)

    def _column(self, name: Any) -> Any:
        """What shows it: fields with a time have a column of their own, everything else is known by its name."""
        fields = {field.name for field in self.opts.concrete_fields if isinstance(field, DateTimeField)}
        return columns.moment(self.opts, name) if name in fields else name

    # Rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """The whole term, matched as ``search_fields`` say: ids and references are no bags of words."""
        term = search_term.strip()
        if not term:
            return queryset, False
        found = searching.find(self.model, self.get_lookups(request, term))
        if found.is_cut:
            words = _("More than %(most)d ids begin so, and not all are shown. Search for more of an id.")
            self.message_user(request, words % {"most": searching.MOST}, messages.WARNING)
        request.pi_is_cut = found.is_cut  # type: ignore[attr-defined]
        return queryset.filter(found.rows), False

    def get_lookups(self, request: HttpRequest, term: str) -> list[searching.Lookup]:
        """The ways to read a term that is searched for."""
        read = (searching.lookup(self.model, str(name), term) for name in self.search_fields)
        return [found for found in read if found is not None]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what the filters offer: Django would take any field, also one that is not to be seen."""
        return lookup in filters.parameters(self.list_filter)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """Only rows that were selected one by one: nobody has seen the others."""
        chosen = queryset.filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME))
        return super().response_action(request, chosen, *args, **kwargs)

    # Pages

    def get_urls(self) -> list[URLPattern]:
        exported: Any = self.admin_site.admin_view(self.export_view)
        own = [path("export/", exported, name=self.url_name("export"))] if self.export else []
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        links = [*self.list_links(request), *self._export_links(request)]
        return super().changelist_view(request, {"pi_list_links": links, **(extra_context or {})})

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """Every row of the list as it is filtered, searched and sorted."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        try:
            listed = cast("KeysetChangeList", self.get_changelist_instance(request))
        except IncorrectLookupParameters:
            return HttpResponseRedirect(display.list_url(self.admin_site, self.model))
        if getattr(request, "pi_is_cut", False):
            # A file of a part would be taken for the whole.
            return HttpResponseRedirect(f"{display.list_url(self.admin_site, self.model)}?{request.GET.urlencode()}")
        hidden = () if self.sees_personal(request) else self.export_personal
        fields = [name for name in self.export if name not in hidden]
        filename = f"{self.opts.model_name}-{localdate():%Y-%m-%d}.csv"
        return on_demand.exporting.response(request, listed.queryset, listed.order, fields, filename)

    def _export_links(self, request: HttpRequest) -> Iterable[Tool]:
        if self.export:
            url = reverse(f"admin:{self.url_name('export')}", current_app=self.admin_site.name)
            kept = request.GET.copy()
            for name in (AFTER, BEFORE):
                kept.pop(name, None)
            yield Tool(_("Export as CSV"), f"{url}?{kept.urlencode()}" if kept else url, post=False)
