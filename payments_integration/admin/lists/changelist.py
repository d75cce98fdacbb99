"""A model's list: its columns, pages, search, filters and export, and the personal data that it masks.

A page costs the same with a hundred rows and with a hundred million, without COUNT or OFFSET: it begins after
(``after``) or ends before (``before``) a cursor, which is one row's values of the columns that the list is sorted by.
One extra row is read to know whether there is another page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ORDER_VAR, SEARCH_VAR, ChangeList
from django.core.exceptions import FieldDoesNotExist, PermissionDenied, SuspiciousOperation
from django.db.models import DateField, QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.urls import URLPattern, path, reverse
from django.utils.functional import cached_property
from django.utils.timezone import localdate
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.admin.lists import filters, saved, terms
from payments_integration.admin.lists.days import chosen_field
from payments_integration.admin.lists.totals import ADD_UP, Totals, totals
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import Tool, may
from payments_integration.db.keyset import Order
from payments_integration.models import Payment

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

AFTER, BEFORE, FORMAT = "after", "before", "format"
TOO_MANY = _("Too many match, and not all are shown. Type more, or add another word.")


class KeysetChangeList(ChangeList):
    """Django's ChangeList with keyset pagination. It does not load the fields in ``list_defer``."""

    cursor: str | None = None
    backwards = False

    def get_filters(self, request: HttpRequest) -> Any:
        # Removed first: a cursor is not a filter, and only the links between pages contain it.
        for name in (AFTER, BEFORE):
            if value := self.params.pop(name, None):
                self.cursor, self.backwards = str(value), name == BEFORE
            self.filter_params.pop(name, None)
        self.adds_up = bool(self.params.pop(ADD_UP, ""))
        self.filter_params.pop(ADD_UP, None)
        # Names the format of an export.
        self.params.pop(FORMAT, None)
        self.filter_params.pop(FORMAT, None)
        return super().get_filters(request)

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        found: QuerySet[Any] = super().get_queryset(*args, **kwargs)
        return found.defer(*self.model_admin.list_defer)  # type: ignore[attr-defined]

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        usual, chosen = [*map(str, self.model_admin.get_ordering(request))], self._sorted_by()
        if (field := self.model_admin.chosen_days(request)) and not chosen:  # type: ignore[attr-defined]
            # One index then serves the days and the pages.
            self.order = Order(self.lookup_opts, [f"-{field}"], filled=[field])
        else:
            self.order = Order(self.lookup_opts, chosen or usual)
        return self.order.by

    def _sorted_by(self) -> list[str]:
        """The column in the request, if the list can be sorted by it; those columns have an index."""
        chosen = str(self.params.get(ORDER_VAR) or "").split(".")[0]
        try:
            column = self.list_display[int(chosen.removeprefix("-"))]
        except (ValueError, IndexError):
            return []
        if self.sortable_by is not None and column not in self.sortable_by:
            return []
        try:
            name = self.get_ordering_field(column)
        except FieldDoesNotExist:
            return []
        return [f"-{name}" if chosen.startswith("-") else str(name)] if name else []

    def get_results(self, request: HttpRequest) -> None:
        place = self.order.parse(self.cursor) if self.cursor else None
        rows, self.newer, self.older = self._page(place)
        self.result_list = rows
        self._is_cut = getattr(request, "pi_is_cut", False)
        # Django expects counts. With equal counts it offers no "select all" beyond this page.
        self.result_count = self.full_result_count = len(rows)
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = self.show_all = self.multi_page = False

    def _page(self, place: tuple[Any, ...] | None) -> tuple[list[Any], bool, bool]:
        """The rows, and whether there are rows before and after them."""
        size = self.list_per_page
        if place is not None and self.backwards:
            back = self.order.reversed()
            rows = list(self.queryset.filter(back.after(place)).order_by(*back.by)[: size + 1])
            if len(rows) > size:
                return rows[size - 1 :: -1], True, True
            # At the beginning of the list: show a full first page.
            place = None
        found = self.queryset if place is None else self.queryset.filter(self.order.after(place))
        rows = list(found[: size + 1])
        return rows[:size], place is not None, len(rows) > size

    @cached_property
    def totals(self) -> Totals | None:
        """What all rows add up to; None if there is nothing to add up, or the search did not find all rows."""
        names = self.model_admin.totals  # type: ignore[attr-defined]
        if not names or not self.result_list or self._is_cut:
            return None
        return totals(self.queryset, names, self.filter_specs, everything=self.adds_up)

    @property
    def add_up_url(self) -> str:
        return self.get_query_string({ADD_UP: "1"})

    @property
    def first_url(self) -> str:
        return self.get_query_string() if self.newer else ""

    @property
    def newer_url(self) -> str:
        if not self.newer or not self.result_list:
            return ""
        return self.get_query_string({BEFORE: self.order.cursor(self.result_list[0])})

    @property
    def older_url(self) -> str:
        return self.get_query_string({AFTER: self.order.cursor(self.result_list[-1])}) if self.older else ""


class ListAdmin(_ModelAdmin):
    """A ModelAdmin with lists of constant cost, masked columns and an export."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    empty_value_display = display.EMPTY
    #: Whether the search also finds rows by their search terms.
    finds_terms = False
    #: Large fields that the list does not load.
    list_defer: tuple[str, ...] = ()
    #: Fields and columns with personal data, masked for users who may not see it.
    personal: tuple[str, ...] = ()
    #: Times that a list shows with their age.
    aged: tuple[str, ...] = ()
    #: The amounts that are added up per currency above the list.
    totals: tuple[str, ...] = ()
    #: The fields of the export, and those of them that are left out for users who may not see personal data.
    export: tuple[str, ...] = ()
    export_personal: tuple[str, ...] = ()

    def sees_personal(self, request: HttpRequest) -> bool:
        """Whether the user may see personal data of payers and recipients."""
        return may(request, "view_personal_data")

    def url_name(self, name: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{name}"

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        """Links to other pages, above the list."""
        return ()

    # Columns

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        # With one account, its name is the same in every row.
        several = len(conf.aliases()) > 1 or self.opts.pk.name == "account"
        names = [name for name in self.list_display if several or name != "account"]
        if field := self.chosen_days(request):
            # The time that the list is now sorted by, in place of its usual one.
            names = [field if name in (self.sortable_by or ()) else name for name in names]
        return tuple(map(self._masking(request, self._list_column), names))

    def chosen_days(self, request: HttpRequest) -> str:
        """The time field by whose days the list is filtered, if the list is usually sorted by another one."""
        usual = [str(name).removeprefix("-") for name in self.get_ordering(request)]
        return chosen_field(request.GET, self.list_filter, usual)

    def get_sortable_by(self, request: HttpRequest) -> Any:
        return None if self.sortable_by is None else [self._list_column(name) for name in self.sortable_by]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        shown = self._masking(request, self._column)
        return [
            (title, {**options, "fields": tuple(map(shown, options["fields"]))})
            for title, options in super().get_fieldsets(request, obj)
        ]

    def _masking(self, request: HttpRequest, shown: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function from a field's name to the column for this user; ``shown`` is it for users who see everything."""
        if self.sees_personal(request):
            return shown
        return lambda name: columns.masked(self, name) if name in self.personal else shown(name)

    def _list_column(self, name: Any) -> Any:
        return columns.aged(self.opts, name) if name in self.aged else self._column(name)

    def _column(self, name: Any) -> Any:
        """The column of a name: a time has one of our own, any other name stays as it is."""
        fields = {field.name for field in self.opts.concrete_fields if isinstance(field, DateField)}
        return columns.moment(self.opts, name) if name in fields else name

    # Rows

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row of a page, or None. 404 for an id that PostgreSQL cannot be asked for."""
        if "\x00" in object_id:
            raise Http404
        return super().get_object(request, object_id, from_field)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Match the whole text as ``search_fields`` say, and its words as beginnings of the rows' terms."""
        term = search_term.strip()
        if not term:
            return queryset, False

        def by_terms() -> terms.Matches:
            if not self.finds_terms:
                return terms.Matches()
            return terms.find(term, [self.model.kind], personal=self.sees_personal(request))

        found = filters.search(self.model, self.get_lookups(request, term), by_terms)
        if found.is_cut:
            self.message_user(request, TOO_MANY, messages.WARNING)
        request.pi_is_cut = found.is_cut  # type: ignore[attr-defined]
        return queryset.filter(found.rows), False

    def get_lookups(self, request: HttpRequest, term: str) -> list[filters.Lookup]:
        """The lookups that a search term is tried with."""
        read = (filters.lookup(self.model, str(name), term) for name in self.search_fields)
        return [found for found in read if found is not None]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow only the parameters of the filters. Django would allow lookups on hidden fields too."""
        return lookup in filters.parameters(self.list_filter)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """Run an action only on rows that were selected one by one, because only those were visible."""
        chosen = queryset.filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME))
        return super().response_action(request, chosen, *args, **kwargs)

    # Pages

    def get_urls(self) -> list[URLPattern]:
        exported: Any = self.admin_site.admin_view(self.export_view)
        own = [path("export/", exported, name=self.url_name("export"))] if self.export else []
        kept: Any = self.admin_site.admin_view(self.saved_filters_view)
        own.append(path("saved-filters/", kept, name=self.url_name("saved-filters")))
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "GET" and (usual := filters.without_lookups(request.GET, self.list_filter)):
            return HttpResponseRedirect(f"?{usual.urlencode()}")
        own = saved.SavedFilters(self, request)
        links = [*self.list_links(request), *self._export_links(request), *own.tools()]
        context = {"pi_list_links": links, "pi_saved": own, **self._search_context(request), **(extra_context or {})}
        return super().changelist_view(request, context)

    def saved_filters_view(self, request: HttpRequest) -> HttpResponseBase:
        """Saves the filters in the address, or deletes saved ones; then shows the list with those filters."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        return saved.SavedFilters(self, request).respond()

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """Every row of the list as a file, with the list's filters, search and order."""
        # Loaded with the first export, not at start-up.
        from payments_integration.admin.lists import export  # noqa: PLC0415

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
            # An incomplete file would look complete.
            return back
        hidden = () if self.sees_personal(request) else self.export_personal
        fields = [name for name in self.export if name not in hidden]
        filename = f"{self.opts.model_name}-{localdate():%Y-%m-%d}"
        if written is not None:
            return export.csv_response(request, listed.queryset, listed.order, fields, filename, written)
        if not export.has_xlsx():
            needs = _('For Excel files, install the extra "xlsx": pip install "payments-integration[xlsx]".')
            self.message_user(request, needs, messages.ERROR)
            return back
        from payments_integration.admin.lists import xlsx  # noqa: PLC0415

        if xlsx.is_too_long(listed.queryset, listed.order):
            words = _(
                "An Excel file has at most %(most)d rows. Choose fewer days or another filter, or export as CSV."
            )
            self.message_user(request, words % {"most": xlsx.MAX_ROWS}, messages.ERROR)
            return back
        return xlsx.xlsx_response(request, listed.queryset, listed.order, fields, filename)

    def _search_context(self, request: HttpRequest) -> dict[str, Any]:
        if not self.finds_terms:
            return {}
        everywhere = display.page_url(self.admin_site, Payment, "search")
        query = urlencode({"q": request.GET.get(SEARCH_VAR, "")})
        return {
            "pi_finds_terms": True,
            "pi_search_url": f"{everywhere}?{query}" if everywhere else "",
            "pi_sees_personal": self.sees_personal(request),
            "pi_example": terms.example(),
        }

    def _export_links(self, request: HttpRequest) -> Iterable[Tool]:
        if self.export:
            # Loaded with the first list, not at start-up.
            from payments_integration.admin.lists.export import ExportForm  # noqa: PLC0415

            url = reverse(f"admin:{self.url_name('export')}", current_app=self.admin_site.name)
            kept = request.GET.copy()
            for name in (AFTER, BEFORE, FORMAT, ADD_UP):
                kept.pop(name, None)
            yield Tool(_("Export"), url, post=False, form=ExportForm(FORMAT, kept))
