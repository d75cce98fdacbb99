"""A model's list: its columns, pages, search and filters, and the personal data that it masks.

A page costs the same with a hundred rows and with a hundred million, without COUNT or OFFSET: it begins after
(``after``) or ends before (``before``) a cursor, which is one row's values of the columns that the list is sorted by.
One extra row is read to know whether there is another page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import QUOTE_MAP
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateField, DateTimeField, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import cached_property
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.admin.lists import chosen, filters
from payments_integration.admin.lists.chosen import Chip, Tab
from payments_integration.admin.lists.days import chosen_field
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import Tool, may
from payments_integration.admin.shared.menu import Entry, Place
from payments_integration.db.keyset import Order
from payments_integration.validation.text import typed

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

AFTER, BEFORE = "after", "before"
TOO_MANY = _("Too many match, and not all are shown. Type more, or add another word.")

#: What Django's ``unquote`` makes of an underscore and two digits, and how they are written.
_READ_AS_QUOTED = {code: text for code, text in QUOTE_MAP.items() if code != ord("_")}


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
        tabs = chosen.with_all(self.model_admin.tabs)  # type: ignore[attr-defined]
        counts = chosen.counts(request, self, tabs)
        rows, self.newer, self.older = self._page(self.queryset.annotate(**counts), place)
        self.tabs = chosen.tab_links(self, tabs, chosen.counted(rows, counts, self.queryset.db))
        self.result_list = rows
        # Django expects counts. With equal counts it offers no "select all" beyond this page.
        self.result_count = self.full_result_count = len(rows)
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = self.show_all = self.multi_page = False

    def _page(self, listed: QuerySet[Any], place: tuple[Any, ...] | None) -> tuple[list[Any], bool, bool]:
        """The rows, and whether there are rows before and after them."""
        size = self.list_per_page
        if place is not None and self.backwards:
            back = self.order.reversed()
            rows = list(listed.filter(back.after(place)).order_by(*back.by)[: size + 1])
            if len(rows) > size:
                return rows[size - 1 :: -1], True, True
            # At the beginning of the list: show a full first page.
            place = None
        found = listed if place is None else listed.filter(self.order.after(place))
        rows = list(found[: size + 1])
        return rows[:size], place is not None, len(rows) > size

    @cached_property
    def chips(self) -> list[Chip]:
        return list(chosen.chips(self, self.tabs))

    @property
    def plain_url(self) -> str:
        """The list without what the chips stand for."""
        return self.get_query_string({name: None for chip in self.chips for name in chip.names})

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
    """A ModelAdmin with lists of constant cost and masked columns."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    empty_value_display = display.EMPTY
    #: Large fields that the list does not load.
    list_defer: tuple[str, ...] = ()
    #: Fields and columns with personal data, masked for users who may not see it.
    personal: tuple[str, ...] = ()
    #: Where the menu has the list, and under which name if not under that of the model; None: not in the menu.
    menu_place: Place | None = None
    menu_label: StrOrPromise = ""
    #: Links above the list to the rows in some statuses, which leave the other filters as they are.
    tabs: tuple[Tab, ...] = ()

    def sees_personal(self, request: HttpRequest) -> bool:
        """Whether the user may see personal data of payers and recipients."""
        return may(request, "view_personal_data")

    def url_name(self, name: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{name}"

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        """Links to other pages, above the list."""
        return ()

    def menu_entries(self, request: HttpRequest) -> Iterable[Entry]:
        """The menu's entries for the pages of this model that the user may see."""
        if self.menu_place is not None and self.has_view_permission(request):
            label = self.menu_label or capfirst(str(self.opts.verbose_name_plural))
            yield Entry(self.menu_place, label, display.list_url(self.admin_site, self.model), self.model)

    def search_url(self, request: HttpRequest) -> str:
        """The page that the search above every page leads to; empty if this model does not have it."""
        return ""

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
        """The column of a name in the list: an id can be copied, and a time has few words."""
        if name == "id":
            return columns.copied(self.opts, name)
        field = next((field for field in self.opts.concrete_fields if field.name == name), None)
        return columns.short(self.opts, name) if isinstance(field, DateTimeField) else self._column(name)

    def _column(self, name: Any) -> Any:
        """The column of a name: a time and the account have one of our own, any other name stays as it is."""
        fields = {field.name for field in self.opts.concrete_fields if isinstance(field, DateField)}
        if name == "account":
            return columns.account(self.opts)
        return columns.moment(self.opts, name) if name in fields else name

    # Rows

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row of a page, or None. 404 for an id that PostgreSQL cannot be asked for."""
        if "\x00" in object_id:
            raise Http404
        found = super().get_object(request, object_id, from_field)
        # Django's link beside a field of raw_id_fields is not quoted: "pay_22…" arrives as 'pay"…'.
        raw = object_id.translate(_READ_AS_QUOTED)
        return super().get_object(request, raw, from_field) if found is None and raw != object_id else found

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Match the whole text as ``search_fields`` say, and as ``find_more`` does."""
        term = typed(search_term).strip()
        if not term:
            return queryset, False
        found = filters.search(self.model, self.get_lookups(request, term), lambda: self.find_more(request, term))
        if found.is_cut:
            self.message_user(request, TOO_MANY, messages.WARNING)
        request.pi_is_cut = found.is_cut  # type: ignore[attr-defined]
        request.pi_found = found.rows  # type: ignore[attr-defined]
        return queryset.filter(found.rows), False

    def find_more(self, request: HttpRequest, term: str) -> tuple[Iterable[Any], bool]:
        """The primary keys of further rows that match a search term, and whether there may be more of them."""
        return (), False

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

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "GET" and (usual := filters.without_lookups(request.GET, self.list_filter)):
            return HttpResponseRedirect(f"?{usual.urlencode()}")
        context = {"title": capfirst(str(self.opts.verbose_name_plural)), "pi_list_links": self.list_links(request)}
        return super().changelist_view(request, {**context, **(extra_context or {})})
