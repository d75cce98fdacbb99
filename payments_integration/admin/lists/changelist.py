"""Show a model's list: its columns, pages, search and filters. Personal data is masked.

A page costs the same with a hundred rows and with a hundred million, because it needs no COUNT or OFFSET. It begins
after (``after``) or ends before (``before``) a cursor: one row's values in the columns that the list is sorted by. One
extra row is read to find out if there is another page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import QUOTE_MAP
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import FieldDoesNotExist, SuspiciousOperation, ValidationError
from django.db.models import DateField, DateTimeField, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.admin.lists import filters
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import Tool, may
from payments_integration.admin.shared.history import may_read
from payments_integration.admin.shared.sections import Page
from payments_integration.db.keyset import Order
from payments_integration.validation.text import typed

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

AFTER, BEFORE = "after", "before"
TOO_MANY = _("Too many match, and not all are shown. Type more, or add another word.")

#: Maps each character that Django's ``unquote`` makes of an underscore and two digits to these three characters.
_READ_AS_QUOTED = {code: text for code, text in QUOTE_MAP.items() if code != ord("_")}


class KeysetChangeList(ChangeList):
    """Django's ChangeList with keyset pagination. It does not load the fields in ``list_defer``."""

    cursor: str | None = None
    backwards = False

    def get_filters(self, request: HttpRequest) -> Any:
        # Remove the cursor first: it is not a filter, and only the links between pages contain it.
        for name in (AFTER, BEFORE):
            if value := self.params.pop(name, None):
                self.cursor, self.backwards = str(value), name == BEFORE
            self.filter_params.pop(name, None)
        return super().get_filters(request)

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        found: QuerySet[Any] = super().get_queryset(*args, **kwargs)
        return found.defer(*self.model_admin.list_defer)  # type: ignore[attr-defined]

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        self.order = Order(self.lookup_opts, self.sorted_by() or [*map(str, self.model_admin.get_ordering(request))])
        return self.order.by

    def sorted_by(self) -> list[str]:
        """Return the column in the request if the list can be sorted by it. Such columns have an index."""
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
        try:
            rows, self.newer, self.older = self.read_page(request, self.queryset, place)
        except OverflowError as error:
            # A filter has a time at an end of the calendar, and UTC is beyond it.
            raise IncorrectLookupParameters(error) from error
        self.result_list = rows
        # Django expects counts. If they are equal, it offers no "select all" beyond this page.
        self.result_count = self.full_result_count = len(rows)
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = self.show_all = self.multi_page = False

    def read_page(
        self, request: HttpRequest, listed: QuerySet[Any], place: tuple[Any, ...] | None
    ) -> tuple[list[Any], bool, bool]:
        """Return the rows, True if there are rows before them, and True if there are rows after them."""
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
    #: Columns with links to other rows, values of them, or people. Users who may not open or see them get text, or no
    #: value.
    linked: tuple[str, ...] = ()
    #: The template above the title of each page.
    head_template = "admin/payments_integration/includes/head.html"

    def sees_personal(self, request: HttpRequest) -> bool:
        """Return True if the user may see personal data of payers and recipients."""
        return may(request, "view_personal_data")

    def url_name(self, name: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{name}"

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        """Yield links to other pages, above the list."""
        return ()

    # Columns

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        return tuple(map(self.masking(request, self._list_column), self.list_names(request)))

    def list_names(self, request: HttpRequest) -> list[Any]:
        # With one account, its name is the same in every row.
        several = len(conf.aliases()) > 1 or self.opts.pk.name == "account"
        return [name for name in self.list_display if several or name != "account"]

    def get_sortable_by(self, request: HttpRequest) -> Any:
        return None if self.sortable_by is None else [self._list_column(name) for name in self.sortable_by]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        shown = self.masking(request, self._column)
        return [
            (title, {**options, "fields": tuple(map(shown, options["fields"]))})
            for title, options in super().get_fieldsets(request, obj)
        ]

    def masking(self, request: HttpRequest, shown: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function from a field's name to its column: ``shown``, or the column for this user."""
        sees = self.sees_personal(request)
        # Django looks a column up in the result of another call.
        kept = vars(request).setdefault("pi_columns", {})

        def column(name: Any) -> Any:
            if name in self.personal and not sees:
                return columns.masked(self, name)
            if name not in self.linked:
                return shown(name)
            if (self, name) not in kept:
                kept[self, name] = columns.linked(self.seen(request), name)
            return kept[self, name]

        return column

    def seen(self, request: HttpRequest) -> Self:
        """Return this ModelAdmin with the site as the user of this request sees it."""
        own = copy(self)
        own.admin_site = display.seen(self.admin_site, request)
        return own

    def _list_column(self, name: Any) -> Any:
        """Return the column of a name in the list: an id can be copied, and a time has few words."""
        if name == "id":
            return columns.of_field(self.opts, name, display.copied)
        field = next((field for field in self.opts.concrete_fields if field.name == name), None)
        is_time = isinstance(field, DateTimeField)
        return columns.of_field(self.opts, name, display.short) if is_time else self._column(name)

    def _column(self, name: Any) -> Any:
        """Return the column of a name. Times and the account have columns of our own; any other name is unchanged."""
        fields = {field.name for field in self.opts.concrete_fields if isinstance(field, DateField)}
        if name == "account":
            return columns.of_field(self.opts, name, conf.account_name)
        return columns.of_field(self.opts, name, display.moment) if name in fields else name

    # Rows

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row of a page, or None. Raises Http404 for an id that PostgreSQL does not accept."""
        if "\x00" in object_id:
            raise Http404
        # Django takes an empty ``_to_field`` for a field's name.
        found = super().get_object(request, object_id, from_field or None)
        # Django does not quote its link beside a field of raw_id_fields: "pay_22…" arrives as 'pay"…'.
        raw = object_id.translate(_READ_AS_QUOTED)
        return super().get_object(request, raw, from_field or None) if found is None and raw != object_id else found

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Match the whole text with ``search_fields`` and with ``find_more``."""
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
        """Return the primary keys of further rows that match a search term, and True if there may be more of them."""
        return (), False

    def get_lookups(self, request: HttpRequest, term: str) -> list[filters.Lookup]:
        """Return the lookups that a search tries with a term."""
        read = (filters.lookup(self.model, str(name), term) for name in self.search_fields)
        return [found for found in read if found is not None]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Allow only the parameters of the filters and of the dates above the list.

        Django would allow lookups on hidden fields too.
        """
        # Django decides as well: a filter on a relation does not open the fields behind it.
        known = filters.parameters(self.list_filter, [lookup])
        dates = self.date_hierarchy
        is_date = bool(dates) and (lookup == dates or lookup.startswith(f"{dates}__"))
        return (lookup in known or is_date) and super().lookup_allowed(lookup, value, request)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """Run an action only on rows that were selected one by one, because the user saw only these rows."""
        keys = request.POST.getlist(ACTION_CHECKBOX_NAME)
        try:
            for key in keys:
                self.opts.pk.run_validators(self.opts.pk.to_python(key))
        except ValidationError as error:
            raise SuspiciousOperation("a key that no row can have") from error
        # PostgreSQL refuses a NUL character, and Django filters once more by the same keys.
        chosen = queryset.none() if any("\x00" in key for key in keys) else queryset.filter(pk__in=keys)
        return super().response_action(request, chosen, *args, **kwargs)

    # Pages

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "GET" and (usual := filters.without_lookups(request.GET, self.list_filter)):
            return HttpResponseRedirect(f"?{usual.urlencode()}")
        context = {
            "title": capfirst(str(self.opts.verbose_name_plural)),
            "pi_head": self.head_template,
            "pi_list_links": self.list_links(request),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {"pi_head": self.head_template, "media": self.media, **(extra_context or {})}
        response = super().history_view(request, object_id, context)
        shown = getattr(response, "context_data", None) or {}
        if "action_list" in shown:
            entries, page = shown["action_list"], Page(self.admin_site, request)
            own_id = str(shown["object"].pk)
            entries.object_list = [entry for entry in entries.object_list if may_read(page, own_id, entry)]
        return response
