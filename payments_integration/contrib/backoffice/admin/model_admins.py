"""Register the back office's ModelAdmins, which add to each list and page of the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy
from django.views.decorators.debug import sensitive_post_parameters

from payments_integration.admin import flows
from payments_integration.admin.base import MirrorAdmin, ReadOnlyAdmin
from payments_integration.admin.lists import filters
from payments_integration.admin.models import events, operations, reconciliation, webhook_endpoints
from payments_integration.admin.shared import columns, display
from payments_integration.admin.shared.buttons import AGAIN, Tool, Weight, may, may_view
from payments_integration.admin.shared.sections import STYLES, Page, Section, once
from payments_integration.contrib.backoffice import search
from payments_integration.contrib.backoffice.admin import chosen
from payments_integration.contrib.backoffice.admin.days import days, movement_days, with_days
from payments_integration.contrib.backoffice.admin.lists import BackOfficeAdmin, ChosenAdmin
from payments_integration.contrib.backoffice.admin.menu import Entry, MenuAdmin, Place
from payments_integration.contrib.backoffice.admin.sections.balances import BalanceSectionsAdmin
from payments_integration.contrib.backoffice.admin.sections.deposit_references import DepositReferenceSectionsAdmin
from payments_integration.contrib.backoffice.admin.sections.payments import PaymentSectionsAdmin
from payments_integration.contrib.backoffice.admin.sections.payouts import PayoutSectionsAdmin
from payments_integration.contrib.backoffice.admin.sections.refunds import RefundSectionsAdmin
from payments_integration.contrib.backoffice.admin.since import StatusSince, SucceededDays, success_days
from payments_integration.contrib.backoffice.models import Note, Overview, Todo
from payments_integration.contrib.backoffice.notes import ADD
from payments_integration.contrib.finance import admin as finance
from payments_integration.contrib.finance.models import Movement
from payments_integration.enums import (
    OPEN_PAYMENT_STATUSES,
    PAID_PAYMENT_STATUSES,
    VAIN_PAYMENT_STATUSES,
    PaymentStatus,
)
from payments_integration.models import (
    Balance,
    DepositReference,
    Event,
    Operation,
    Payment,
    Payout,
    ReconciliationRun,
    Refund,
    StatusChange,
    WebhookEndpoint,
)

AdminT = TypeVar("AdminT", bound=type[Any])
#: The scripts of pages with charts, in the order in which they load.
SCRIPTS = ("payments_backoffice/vendor/chart.js/chart.umd.min.js", "payments_backoffice/dashboard.js")


def instead(model: type[Model]) -> Any:
    """Register the decorated class for the model, in place of the registered one."""

    def register(model_admin: AdminT) -> AdminT:
        if admin.site.is_registered(model):
            admin.site.unregister(model)
        admin.site.register(model, model_admin)
        return model_admin

    return register


class NotedAdmin(BackOfficeAdmin, MirrorAdmin):
    """The page of an object: its story in sentences, and the notes that staff write about it."""

    def has_add_note_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, ADD, obj)

    def get_urls(self) -> list[URLPattern]:
        return [self.object_path("add-note", self.add_note_view), *super().get_urls()]

    # An error report must not contain the note.
    @method_decorator(sensitive_post_parameters("text"))
    def add_note_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        # Here and below, the module of a page is loaded when the page is opened, not at start-up.
        from payments_integration.contrib.backoffice.admin.notes import NotePage  # noqa: PLC0415

        return NotePage(self, request, self.permitted(request, object_id, self.has_add_note_permission)).respond()

    def sections(self, page: Page, obj: Any) -> Iterable[Section]:
        from payments_integration.contrib.backoffice.admin.notes import note_steps, notes_section  # noqa: PLC0415
        from payments_integration.contrib.backoffice.admin.sections.records import read  # noqa: PLC0415
        from payments_integration.contrib.backoffice.admin.sections.story import story  # noqa: PLC0415
        from payments_integration.contrib.backoffice.admin.sections.timeline import timeline  # noqa: PLC0415

        records = read(page, obj)
        yield story(page, obj, records, note_steps(page, obj))
        yield from notes_section(self, page, obj)
        yield from self.details(page, obj)
        yield timeline(page, obj, records)


@instead(Payment)
class BackOfficePaymentAdmin(NotedAdmin, PaymentSectionsAdmin):
    menu_place = Place.PAYMENTS
    tabs = (
        chosen.in_status(pgettext_lazy("payments", "Paid"), PAID_PAYMENT_STATUSES),
        chosen.in_status(_("Waiting"), OPEN_PAYMENT_STATUSES),
        chosen.in_status(_("Failed"), VAIN_PAYMENT_STATUSES),
        chosen.Tab(
            pgettext_lazy("payments", "Refunded"), {filters.REFUNDED: "yes"}, filters.refunded, is_counted=False
        ),
        chosen.in_status(_("Disputed"), {PaymentStatus.CHARGEBACK}),
    )
    list_filter = (*with_days(PaymentSectionsAdmin.list_filter), success_days(), StatusSince)
    actions = ("refund_selected",)
    # The first is above the list: of failed and waiting payments, nothing was received.
    totals = ("amount_received", "amount", "refunded_amount")
    finds_terms = True
    search_help_text = _(
        "An id, amount, merchant reference, bank reference, voucher or QR code; the payer's name, e-mail address, "
        "document or phone. The beginning of each word is enough."
    )
    export = (
        "id", "status", "amount", "amount_received", "refunded_amount", "fee", "net_amount", "currency", "country",
        "method_code", "method_family", "flow", "merchant_reference", "failure_reason", "payer_email",
        "payer_document", "account", "created_at", "expires_at", "succeeded_at", "gone_at",
    )  # fmt: skip
    export_personal = ("failure_reason", "payer_email", "payer_document")

    def get_urls(self) -> list[URLPattern]:
        return [
            self.list_path("refund-selected", self.refund_selected_view),
            self.list_path("search", self.search_view),
            self.list_path("methods", self.methods_view),
            *super().get_urls(),
        ]

    def refund_page(self, request: HttpRequest, payment: Payment) -> flows.RefundPage:
        from payments_integration.contrib.backoffice.admin.suggestions import SuggestingRefundPage  # noqa: PLC0415

        return SuggestingRefundPage(self, request, payment)

    @admin.action(description=_("Refund selected payments"), permissions=["refund"])
    def refund_selected(self, request: HttpRequest, queryset: QuerySet[Payment]) -> HttpResponse | None:
        from payments_integration.contrib.backoffice.admin import bulk_refund  # noqa: PLC0415

        chosen = list(queryset[: bulk_refund.MAX_PAYMENTS + 1])
        if len(chosen) > bulk_refund.MAX_PAYMENTS:
            words = _("Select at most %(most)d payments to refund at once.") % {"most": bulk_refund.MAX_PAYMENTS}
            self.message_user(request, words, messages.WARNING)
            return None
        if len(chosen) == 1:
            return HttpResponseRedirect(self.object_url("refund", chosen[0]))
        return HttpResponseRedirect(bulk_refund.bulk_refund_url(self, [payment.pk for payment in chosen]))

    def refund_selected_view(self, request: HttpRequest) -> HttpResponse:
        from payments_integration.contrib.backoffice.admin.bulk_refund import BulkRefundPage  # noqa: PLC0415

        return BulkRefundPage(self, request).respond()

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        url = reverse(f"admin:{self.url_name('methods')}", current_app=self.admin_site.name)
        yield Tool(_("Payment methods"), url, post=False)

    def methods_view(self, request: HttpRequest) -> HttpResponse:
        from payments_integration.contrib.backoffice.admin.payment_methods import PaymentMethodsPage  # noqa: PLC0415

        return PaymentMethodsPage(self, request).respond()

    def search_url(self, request: HttpRequest) -> str:
        from payments_integration.contrib.backoffice.admin.overview import search  # noqa: PLC0415

        return search.url(self.admin_site, request)

    def search_view(self, request: HttpRequest) -> HttpResponse:
        # The search is not only about payments: the page checks which rows the user may see.
        from payments_integration.contrib.backoffice.admin.overview.search import SearchPage  # noqa: PLC0415

        return SearchPage(self, request).respond()


@instead(Payout)
class BackOfficePayoutAdmin(NotedAdmin, PayoutSectionsAdmin):
    menu_place = Place.PAYOUTS
    list_filter = (*with_days(PayoutSectionsAdmin.list_filter), success_days(), StatusSince)
    totals = ("amount", "fee")
    finds_terms = True
    search_help_text = _(
        "An id, amount or merchant reference, or the refund's id; the recipient's name, document or account. The "
        "beginning of each word is enough."
    )
    export = (
        "id", "status", "amount", "fee", "currency", "country", "method_code", "merchant_reference",
        "failure_reason", "refund_id", "destination", "account", "created_at", "succeeded_at", "gone_at",
    )  # fmt: skip
    export_personal = ("failure_reason", "destination")

    def payout_page(self, request: HttpRequest) -> flows.PayoutPage:
        from payments_integration.contrib.backoffice.admin.pay_again import PayAgainPage  # noqa: PLC0415

        return PayAgainPage(self, request)

    def links(self, request: HttpRequest, obj: Payout) -> Iterable[Tool]:
        from payments_integration.contrib.backoffice.admin import pay_again  # noqa: PLC0415

        yield from super().links(request, obj)
        if self.has_add_permission(request) and pay_again.is_payable_again(obj) and not self._obstacle(request, obj):
            url = reverse(f"admin:{self.url_name('add')}", current_app=self.admin_site.name)
            url = f"{url}?{urlencode({AGAIN: obj.pk})}"
            yield Tool(_("Pay again"), url, post=False, weight=Weight.MAIN)

    def sentences(self, page: Page, obj: Payout) -> Iterator[str]:
        from payments_integration.contrib.backoffice.admin.suggestions import MONEY_IS_BACK  # noqa: PLC0415

        yield from super().sentences(page, obj)
        if obj.status in MONEY_IS_BACK:
            check = gettext("Check the recipient's bank account with the recipient, then press “Pay again”.")
            yield self._obstacle(page.request, obj) or (check if self.has_add_permission(page.request) else "")

    def _obstacle(self, request: HttpRequest, obj: Payout) -> str:
        from payments_integration.contrib.backoffice.admin import pay_again  # noqa: PLC0415

        # The page asks twice, for the button and for its sentences.
        site = display.seen(self.admin_site, request)
        return once(obj, "pi_obstacle", lambda: pay_again.obstacle(site, obj))


@instead(Refund)
class BackOfficeRefundAdmin(NotedAdmin, RefundSectionsAdmin):
    menu_place = Place.REFUNDS
    list_filter = (*with_days(RefundSectionsAdmin.list_filter), success_days("", SucceededDays), StatusSince)
    totals = ("amount",)
    finds_terms = True
    search_help_text = _(
        "The beginning of an id, an amount, or the whole id of the payment or payout; what finds the payment, such as "
        "the payer's name or the merchant reference"
    )
    export = (
        "id", "status", "amount", "currency", "payment_id", "payment__merchant_reference", "payout_id", "reason",
        "account", "created_at", "gone_at",
    )  # fmt: skip
    export_personal = ("reason",)

    def find_more(self, request: HttpRequest, term: str) -> tuple[Iterable[Any], bool]:
        own, is_cut = super().find_more(request, term)
        of_payments, others_cut = search.refunds_of(term, personal=self.sees_personal(request))
        return [*own, *of_payments], is_cut or others_cut


@instead(DepositReference)
class BackOfficeDepositReferenceAdmin(NotedAdmin, DepositReferenceSectionsAdmin):
    menu_place = Place.DEPOSITS
    menu_label = _("Deposits")
    list_filter = with_days(DepositReferenceSectionsAdmin.list_filter)
    finds_terms = True
    search_help_text = _(
        "An id, a merchant reference, or the bank reference or account that the payer transfers to. The beginning of "
        "each word is enough."
    )
    export = (
        "id", "status", "country", "currency", "method_code", "merchant_reference", "account", "created_at",
        "gone_at",
    )  # fmt: skip


@instead(Balance)
class BackOfficeBalanceAdmin(BackOfficeAdmin, BalanceSectionsAdmin):
    menu_place = Place.BALANCES
    export = ("account", "currency", "available", "pending", "reserve", "hold", "debt", "updated_at", "gone_at")

    class Media:
        css = {"all": STYLES}
        js = SCRIPTS

    def links(self, request: HttpRequest, obj: Balance) -> Iterable[Tool]:
        yield from super().links(request, obj)
        if may_view(self.admin_site, request, Movement):
            url = display.page_url(self.admin_site, Movement, "cash-book")
            query = urlencode({"account": obj.account, "currency": obj.currency})
            yield Tool(_("Cash book"), f"{url}?{query}", post=False)

    def lead(self, page: Page, obj: Balance) -> Iterable[Section]:
        from payments_integration.contrib.backoffice.admin.balance_changes import (  # noqa: PLC0415
            ChartSection,
            balance_chart,
            changes_section,
        )

        yield ChartSection(balance_chart(obj))
        yield from super().lead(page, obj)
        yield from changes_section(page, obj)

    def sections(self, page: Page, obj: Balance) -> Iterable[Section]:
        from payments_integration.contrib.backoffice.admin.sections.records import read  # noqa: PLC0415
        from payments_integration.contrib.backoffice.admin.sections.timeline import timeline  # noqa: PLC0415

        yield timeline(page, obj, read(page, obj))


@instead(Operation)
class BackOfficeOperationAdmin(BackOfficeAdmin, operations.OperationAdmin):
    menu_place = Place.TECHNICAL
    list_filter = with_days(operations.OperationAdmin.list_filter)
    export = (
        "id", "operation", "state", "amount", "currency", "target_id", "result_kind", "result_id",
        "merchant_reference", "actor", "approved_by", "approved_at", "attempts", "account", "created_at",
        "first_sent_at", "last_sent_at", "closed_at",
    )  # fmt: skip
    # A customer's user name is often their e-mail address.
    export_personal = ("actor",)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        # Show them only above the unfiltered first page.
        if not request.GET and self.has_view_permission(request):
            from payments_integration.contrib.backoffice.admin.attention import attention  # noqa: PLC0415

            extra_context = {"pi_attention": attention(self, request), **(extra_context or {})}
        return super().changelist_view(request, extra_context)


@instead(Event)
class BackOfficeEventAdmin(BackOfficeAdmin, events.EventAdmin):
    menu_place = Place.TECHNICAL
    list_filter = with_days(events.EventAdmin.list_filter)
    export = (
        "id", "type", "object_kind", "object_id", "state", "source", "attempts", "previous_status", "account",
        "created_at", "received_at", "dispatched_at",
    )  # fmt: skip


@instead(StatusChange)
class BackOfficeStatusChangeAdmin(ChosenAdmin, events.StatusChangeAdmin):
    list_filter = with_days(events.StatusChangeAdmin.list_filter)


@instead(WebhookEndpoint)
class BackOfficeWebhookEndpointAdmin(ChosenAdmin, webhook_endpoints.WebhookEndpointAdmin):
    """The core's page, with chips above the list."""

    menu_place = Place.TECHNICAL


@instead(ReconciliationRun)
class BackOfficeReconciliationRunAdmin(BackOfficeAdmin, reconciliation.ReconciliationRunAdmin):
    menu_place = Place.TECHNICAL
    list_filter = with_days(reconciliation.ReconciliationRunAdmin.list_filter)
    export = (
        "kind", "state", "pages", "seen", "recovered", "drifted", "repaired", "account", "window_from", "window_to",
        "started_at", "finished_at",
    )  # fmt: skip

    def menu_entries(self, request: HttpRequest) -> Iterable[Entry]:
        from payments_integration.admin.technical.account_page import may_see_technical_state  # noqa: PLC0415

        if may_see_technical_state(self.admin_site, request):
            url = display.page_url(self.admin_site, ReconciliationRun, "technical")
            yield Entry(Place.TECHNICAL, _("Technical state"), url)
        yield from super().menu_entries(request)


@instead(Movement)
class BackOfficeMovementAdmin(BackOfficeAdmin, finance.MovementAdmin):
    menu_place = Place.CASH_BOOK
    list_filter = (
        movement_days("booked_on", "", _("booked on")),
        *(item for item in finance.MovementAdmin.list_filter if not isinstance(item, str)),
        movement_days("occurred_on", "occurred_", _("occurred on")),
    )
    export = (
        "id", "booked_on", "occurred_on", "kind", "amount", "currency", "object_id", "account", "occurred_at",
        "recorded_at",
    )  # fmt: skip

    totals = ("amount",)

    def get_urls(self) -> list[URLPattern]:
        return [self.list_path("cash-book", self.cash_book_view), *super().get_urls()]

    def list_links(self, request: HttpRequest) -> Iterable[Tool]:
        if may_view(self.admin_site, request, Balance):
            yield Tool(_("Cash book"), display.page_url(self.admin_site, Movement, "cash-book"), post=False)

    def menu_entries(self, request: HttpRequest) -> Iterable[Entry]:
        # The cash book leads to its movements.
        if self.has_view_permission(request) and may_view(self.admin_site, request, Balance):
            url = display.page_url(self.admin_site, Movement, "cash-book")
            yield Entry(Place.CASH_BOOK, _("Cash book"), url, Movement)
        else:
            yield from super().menu_entries(request)

    def cash_book_view(self, request: HttpRequest) -> HttpResponseBase:
        from payments_integration.contrib.backoffice.admin.cash_book import CashBookPage  # noqa: PLC0415

        return CashBookPage(self, request).respond()


@admin.register(Note)
class NoteAdmin(ChosenAdmin):
    """The list of all notes. It has no export, so that notes stay in the admin."""

    list_display = ("created_at", "object_shown", "author_shown", "text_shown", "account")
    list_filter = (days("created_at"),)
    ordering = ("-created_at", "-pk")
    sortable_by = ("created_at",)
    search_fields = ("object_id__exact",)
    search_help_text = _("The whole id of a payment, payout, refund or deposit reference")
    linked = ("object_shown",)
    personal = ("text_shown",)
    fieldsets = ((None, {"fields": ("object_shown", "author_shown", "created_at", "text_shown", "account")}),)

    object_shown = columns.object_link(_("object"))
    author_shown = columns.value("author", _("author"), display.actor)

    @admin.display(description=_("note"))
    def text_shown(self, obj: Note) -> str:
        """Show the text with its line breaks."""
        shown: str = format_html('<div class="pi-lines">{}</div>', display.text(obj.text))
        return shown if obj.text else str(display.ERASED)


@admin.register(Todo)
class TodoAdmin(MenuAdmin):
    """The entry of the to-do list in the admin's menu. The rows of the list are computed."""

    menu_place = Place.TODO

    def get_urls(self) -> list[URLPattern]:
        return [self._path("", "changelist", self.todo_view)]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        from payments_integration.contrib.backoffice.admin.overview.todo_rows import TodoRows  # noqa: PLC0415

        return TodoRows(self.admin_site, request).is_open()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    # An error report must not contain the note.
    @method_decorator(sensitive_post_parameters("note"))
    def todo_view(self, request: HttpRequest) -> HttpResponse:
        from payments_integration.contrib.backoffice.admin.overview.todo import TodoPage  # noqa: PLC0415

        return TodoPage(self, request).respond()


@admin.register(Overview)
class OverviewAdmin(ReadOnlyAdmin):
    """The entry of the overview in the admin's index. It redirects to the overview."""

    def get_urls(self) -> list[URLPattern]:
        return [self._path("", "changelist", self.overview_view)]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # The page is the core app's index, which opens for users who see one of its models there.
        return any(
            may_view(self.admin_site, request, model) and model_admin.has_module_permission(request)
            for model, model_admin in self.admin_site._registry.items()
            if model._meta.app_label == Payment._meta.app_label
        )

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        index = reverse("admin:app_list", args=[Payment._meta.app_label], current_app=self.admin_site.name)
        return HttpResponseRedirect(index)
