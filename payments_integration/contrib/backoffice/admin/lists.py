"""Add the search by terms, totals, saved filters and the export to the admin's lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from payments_integration import dates
from payments_integration.admin.lists.changelist import AFTER, BEFORE, KeysetChangeList
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import Tool, may_view
from payments_integration.contrib.backoffice import search
from payments_integration.contrib.backoffice.admin import chosen, saved
from payments_integration.contrib.backoffice.admin.chosen import Chip, Tab
from payments_integration.contrib.backoffice.admin.days import chosen_field
from payments_integration.contrib.backoffice.admin.sections.base import SectionsAdmin
from payments_integration.contrib.backoffice.admin.totals import ADD_UP, Totals, totals
from payments_integration.db.keyset import Order
from payments_integration.models import Payment

#: The query parameter with the format of an export.
FORMAT = "format"


class ChosenChangeList(KeysetChangeList):
    """The core's list with tabs and chips. It is sorted by the time whose days are chosen."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        usual = super().get_ordering(request, queryset)
        field = self.model_admin.chosen_days(request)  # type: ignore[attr-defined]
        if not field or self.sorted_by():
            return usual
        # One index is then used for the days and the pages.
        self.order = Order(self.lookup_opts, [f"-{field}"], filled=[field])
        return self.order.by

    def read_page(
        self, request: HttpRequest, listed: QuerySet[Any], place: tuple[Any, ...] | None
    ) -> tuple[list[Any], bool, bool]:
        tabs = chosen.with_all(self.model_admin.tabs)  # type: ignore[attr-defined]
        counts = chosen.counts(request, self, tabs)
        found = super().read_page(request, listed.annotate(**counts), place)
        self.tabs = chosen.tab_links(self, tabs, chosen.counted(found[0], counts, listed.db))
        return found

    @cached_property
    def chips(self) -> list[Chip]:
        return list(chosen.chips(self, self.tabs))

    @property
    def plain_url(self) -> str:
        """The URL of the list without the filters that the chips show."""
        return self.get_query_string({name: None for chip in self.chips for name in chip.names})


class BackOfficeChangeList(ChosenChangeList):
    """The list with totals."""

    def get_filters(self, request: HttpRequest) -> Any:
        # Remove these parameters first, because they are no filters.
        self.adds_up = bool(self.params.pop(ADD_UP, ""))
        for name in (ADD_UP, FORMAT):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        return super().get_filters(request)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self._is_cut = getattr(request, "pi_is_cut", False)

    @cached_property
    def totals(self) -> Totals | None:
        """The totals of all rows; None if there is nothing to add up, or the search did not find all rows."""
        names = self.model_admin.totals  # type: ignore[attr-defined]
        if not names or not self.result_list or self._is_cut:
            return None
        return totals(self.queryset, names, self.filter_specs, everything=self.adds_up)

    @property
    def add_up_url(self) -> str:
        return self.get_query_string({ADD_UP: "1"})


class ChosenAdmin(SectionsAdmin):
    """A mixin for lists with tabs, chips and filters by day. Name it before the core's ModelAdmin."""

    # Name the templates, because Django looks for them in a folder of the model's app.
    change_list_template: ClassVar[Any] = "admin/payments_backoffice/change_list.html"
    object_history_template: ClassVar[Any] = "admin/payments_integration/object_history.html"
    #: Links above the list to the rows in some statuses. They keep the other filters.
    tabs: tuple[Tab, ...] = ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ChosenChangeList

    def list_names(self, request: HttpRequest) -> list[Any]:
        names = super().list_names(request)
        if field := self.chosen_days(request):
            # The list is now sorted by this time, so show it in place of the usual one.
            names = [field if name in (self.sortable_by or ()) else name for name in names]
        return names

    def chosen_days(self, request: HttpRequest) -> str:
        """Return the time field whose days filter the list, if the list is usually sorted by another field."""
        usual = [str(name).removeprefix("-") for name in self.get_ordering(request)]
        return chosen_field(request.GET, self.list_filter, usual)


class BackOfficeAdmin(ChosenAdmin):
    """A mixin for the back office's ModelAdmins. Name it before the core's ModelAdmin among the base classes."""

    #: True if the search also finds rows by their search terms.
    finds_terms = False
    #: The amounts that are added up per currency above the list.
    totals: tuple[str, ...] = ()
    #: The fields of the export, and the personal fields among them, which only users who may see personal data get.
    export: tuple[str, ...] = ()
    export_personal: tuple[str, ...] = ()

    def get_urls(self) -> list[URLPattern]:
        urls = [self.list_path("saved-filters", self.saved_filters_view)]
        if self.export:
            urls.append(self.list_path("export", self.export_view))
        return [*urls, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BackOfficeChangeList

    def find_more(self, request: HttpRequest, term: str) -> tuple[Iterable[Any], bool]:
        """Return the ids of rows whose search terms begin with the words of ``term``.

        The second value is True if there may be more.
        """
        if not self.finds_terms:
            return (), False
        kind = self.model.kind
        found = search.find(term, [kind], personal=self.sees_personal(request))
        return found.ids.get(kind, []), found.is_cut

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        own = saved.SavedFilters(self, request)
        links = [*self.list_links(request), *self._export_links(request), *own.tools()]
        context = {"pi_list_links": links, "pi_saved": own, **self._search_context(request), **(extra_context or {})}
        return super().changelist_view(request, context)

    def saved_filters_view(self, request: HttpRequest) -> HttpResponseBase:
        """Save the filters in the address, or delete saved ones; then show the list with the address's filters."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return saved.SavedFilters(self, request).respond()

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """Return every row of the list as a file, with the list's filters, search and order."""
        # Load the module with the first export, not at start-up.
        from payments_integration.contrib.backoffice.admin import export  # noqa: PLC0415

        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        chosen = request.GET.get(FORMAT, "")
        written = export.dialect(chosen)
        if written is None and chosen != export.XLSX:
            raise SuspiciousOperation("an unknown format")
        back = HttpResponseRedirect(f"{display.list_url(self.admin_site, self.model)}?{request.GET.urlencode()}")
        try:
            listed = cast("KeysetChangeList", self.get_changelist_instance(request))
        except IncorrectLookupParameters:
            return HttpResponseRedirect(display.list_url(self.admin_site, self.model))
        if getattr(request, "pi_is_cut", False):
            # Send no file, because an incomplete file would look complete.
            return back
        hidden = () if self.sees_personal(request) else self.export_personal
        fields = [name for name in self.export if name not in hidden and self._may_export(request, name)]
        filename = f"{self.opts.model_name}-{dates.today():%Y-%m-%d}"
        names, rows = export.headings(fields), export.records(listed.queryset, listed.order, fields)
        if written is not None:
            return export.csv_response(request, names, rows, filename, written)
        if not export.has_xlsx():
            needs = _('For Excel files, install the extra "xlsx": pip install "payments-integration[xlsx]".')
            self.message_user(request, needs, messages.ERROR)
            return back
        from payments_integration.contrib.backoffice.admin import xlsx  # noqa: PLC0415

        if xlsx.is_too_long(listed.queryset, listed.order):
            words = _(
                "An Excel file has at most %(most)d rows. Choose fewer days or another filter, or export as CSV."
            )
            self.message_user(request, words % {"most": xlsx.MAX_ROWS}, messages.ERROR)
            return back
        return xlsx.xlsx_response(request, names, rows, filename)

    def _may_export(self, request: HttpRequest, name: str) -> bool:
        """Return True unless the field is of a related row that the user may not see."""
        relation, lookup, _field = name.partition("__")
        related: Any = self.opts.get_field(relation).related_model if lookup else self.model
        return may_view(self.admin_site, request, related)

    def _search_context(self, request: HttpRequest) -> dict[str, Any]:
        if not self.finds_terms:
            return {}
        everywhere = display.page_url(self.admin_site, Payment, "search")
        query = urlencode({"q": request.GET.get(SEARCH_VAR, "")})
        return {
            "pi_finds_terms": True,
            "pi_search_url": f"{everywhere}?{query}" if everywhere else "",
            "pi_sees_personal": self.sees_personal(request),
            "pi_example": search.example(),
        }

    def _export_links(self, request: HttpRequest) -> Iterable[Tool]:
        if self.export:
            # Load the module with the first list, not at start-up.
            from payments_integration.contrib.backoffice.admin.export import ExportForm  # noqa: PLC0415

            url = reverse(f"admin:{self.url_name('export')}", current_app=self.admin_site.name)
            kept = request.GET.copy()
            for name in (AFTER, BEFORE, FORMAT, ADD_UP):
                kept.pop(name, None)
            yield Tool(_("Export"), url, post=False, form=ExportForm(FORMAT, kept))
