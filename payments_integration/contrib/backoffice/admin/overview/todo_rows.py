"""Prepare the rows of the to-do list for people: who, how much, what, since when, and the action that ends it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.auth import get_permission_codename
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _, gettext_lazy, ngettext, pgettext_lazy

from payments_integration import conf, permissions
from payments_integration.admin.shared import display, people
from payments_integration.admin.shared.buttons import AGAIN, may, may_view
from payments_integration.admin.shared.sections import Page
from payments_integration.admin.technical.account_page import OUTAGES, AccountPage, Tile
from payments_integration.contrib.backoffice import comparison, handling, todo
from payments_integration.contrib.backoffice.admin.overview import statistics
from payments_integration.contrib.backoffice.models import Todo
from payments_integration.contrib.backoffice.todo import Kind, Thing, View
from payments_integration.enums import ID_PREFIXES
from payments_integration.health import AccountReport
from payments_integration.health.examination import UNKNOWN_ALERT
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Erasure,
    Operation,
    Payment,
    Payout,
    ReconciliationRun,
    Refund,
    WebhookEndpoint,
)
from payments_integration.payer.names import reason_text
from payments_integration.validation.text import StrOrPromise

#: Users who may see one of these models can repair technical problems, and see them. The others see only outages:
#: support staff can read events and operations, but cannot repair anything.
REPAIRED_BY: tuple[type[Model], ...] = (AccountState, DueRefresh, Erasure, ReconciliationRun, WebhookEndpoint)
#: The number of rows that the overview shows.
HEAD = 5

#: Words that say what happened and what to do, by kind and, if the words depend on it, by status.
_WORDS: dict[tuple[Kind, str], StrOrPromise] = {
    (Kind.ON_HOLD, ""): gettext_lazy("payment on hold: do not deliver yet"),
    (Kind.CHARGEBACK, ""): gettext_lazy("charged back: the bank took the money"),
    (Kind.PAYOUT, "failed"): gettext_lazy("payout rejected by the bank"),
    (Kind.PAYOUT, "returned"): gettext_lazy("payout returned by the bank"),
    (Kind.REFUND, "failed"): gettext_lazy("refund rejected by the bank"),
    (Kind.REFUND, "returned"): gettext_lazy("refund returned by the bank"),
    (Kind.UNPAID, ""): gettext_lazy(
        "paid, but the order is not: if it covers the price, mark the order as paid and deliver; otherwise refund"
    ),
    (Kind.WITHOUT_ORDER, ""): gettext_lazy("paid, but the order is gone: find out why, or refund"),
    (Kind.WITHOUT_PAYMENT, ""): gettext_lazy("order marked as paid, but no money is here: do not deliver"),
}
#: The same for operations. The operation's name comes first.
_OF_OPERATIONS: dict[Kind, StrOrPromise] = {
    Kind.DECIDE: gettext_lazy("%(operation)s: decide whether it happened"),
    Kind.APPROVE: gettext_lazy("%(operation)s: waits for approval"),
    Kind.UNKNOWN: gettext_lazy("%(operation)s: outcome not known yet, do not repeat it"),
    Kind.REFUSED: gettext_lazy(
        "%(operation)s: the provider refused it, so nothing happened; ask again if it is still needed"
    ),
}


#: Kinds that end with a refund of the payment that they are about, and the action's label.
_REFUNDED: dict[Kind, StrOrPromise] = {
    Kind.REFUND: gettext_lazy("Refund again"),
    Kind.PAID_TWICE: gettext_lazy("Refund one"),
    Kind.WITHOUT_ORDER: pgettext_lazy("button", "Refund"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to do, as one user sees it."""

    #: Unique in the page.
    id: str
    #: "CLP 250,000"; a dash if it is not known.
    amount: str
    who: str
    #: Words that say what happened and what to do.
    what: str
    #: The URL of its page.
    url: str
    reference: str
    reason: str
    #: The time since then, such as "2 h".
    age: str
    at: str
    is_urgent: bool
    #: (label, URL) of the action that ends it; None if the user may do nothing there.
    action: tuple[StrOrPromise, str] | None
    #: The hidden fields that name it in a form.
    fields: dict[str, str]
    is_done_by_note: bool
    is_erased: bool
    assigned_to: str
    is_mine: bool
    snoozed_until: str
    #: The note that was typed, if it was refused: the form is open.
    note: str = ""
    #: The name that was typed into "Assign to", if it was refused.
    name: str = ""


class TodoRows(AccountPage):
    """The rows of one account that one user may see."""

    def __init__(self, site: AdminSite, request: HttpRequest, account: str | None = None) -> None:
        super().__init__(site, request)
        if account in conf.aliases():
            self.account = str(account)
        self._page = Page(site, request)
        self.user_id = permissions.user_id(request.user)
        self.may_handle = may(request, handling.HANDLE)
        self._decides = may(request, "change_operation") or may(request, "close_operation")
        self._approves = may(request, "approve_operation")

    def kinds(self) -> list[Kind]:
        """Return the kinds whose rows this user may see. Users always see the operations that they asked for."""
        return [kind for kind, model in todo.MODELS.items() if self.sees(model)] + (
            [Kind.WITHOUT_PAYMENT] if self._order_models() else []
        )

    def is_open(self) -> bool:
        """Return True if the user may see any object that can be in the list."""
        return any(self.sees(model) for model in (Payment, Payout, Refund, Operation))

    def _order_models(self) -> list[type[Model]]:
        if not self.account or not self.sees(Payment):
            return []
        compared = comparison.compared_models(self.account)
        return [model for model in compared if _may_see(self._site, self._request, model)]

    def asked(
        self, view: View = View.OPEN, kinds: Iterable[Kind] | None = None, thing: str | None = None
    ) -> todo.Asked:
        others = {
            *([Kind.DECIDE, Kind.UNKNOWN] if self._decides else []),
            *([Kind.APPROVE] if self._approves else []),
        }
        return todo.Asked(
            account=self.account,
            kinds=list(self.kinds() if kinds is None else set(kinds).intersection(self.kinds())),
            view=view,
            user_id=self.user_id,
            others=others,
            thing=thing,
            order_models=self._order_models(),
        )

    def differences(self) -> list[Thing]:
        """Return the orders that do not match their payments now, without the cache."""
        return todo.differences_of(self.account, statistics.last_days().bounds[0]) if self.sees(Payment) else []

    def rows(self, things: Sequence[Thing]) -> list[Row]:
        gone = handling.gone({thing.found.assignee for thing in things if thing.found.assignee})
        shown = (_free(thing) if thing.found.assignee in gone else thing for thing in things)
        return [self._row(number, thing) for number, thing in enumerate(shown)]

    def is_urgent(self, thing: Thing) -> bool:
        if thing.kind == Kind.UNKNOWN:
            return (timezone.now() - thing.since).total_seconds() > UNKNOWN_ALERT
        return thing.kind not in todo.INFORMATIVE and not self._is_own_request(thing)

    def _is_own_request(self, thing: Thing) -> bool:
        """Return True if it waits for another person, because this user asked for it or may not approve."""
        own = bool(self.user_id) and thing.found.actor_id == self.user_id
        return thing.kind == Kind.APPROVE and (own or not self._approves)

    def _row(self, number: int, thing: Thing) -> Row:
        found = thing.found
        return Row(
            id=f"pi-todo-{number}",
            amount=display.money(found.amount, found.currency) if found.amount is not None else display.EMPTY,
            who=self._who(thing),
            what=self._what(thing),
            url=self._url(thing),
            reference=display.text(found.reference) if found.reference and not self._hides_payment(thing) else "",
            reason=self._page.personal(reason_text(found.reason)) if found.reason and not found.is_erased else "",
            age=display.time_since(found.since) if found.since else "",
            at=display.moment(found.since) if found.since else "",
            is_urgent=self.is_urgent(thing),
            action=self._action(thing),
            fields={
                "account": thing.account,
                "kind": thing.kind.value,
                "thing": found.thing,
                "since": thing.since.isoformat(),
            },
            is_done_by_note=thing.is_done_by_note,
            is_erased=bool(found.is_erased),
            assigned_to=display.actor(found.assignee_name) if found.assignee_name else "",
            is_mine=bool(found.assignee) and found.assignee == self.user_id,
            snoozed_until=display.moment(found.snoozed_until) if found.snoozed_until else "",
        )

    def _who(self, thing: Thing) -> str:
        if thing.found.is_erased:
            return str(display.ERASED)
        given = thing.found.person
        own = "" if self._hides_payment(thing) else people.name_in(given)
        inner = (given.get(name) for name in ("destination", "payer")) if isinstance(given, dict) else ()
        name = own or next(filter(None, map(people.name_in, inner)), "")
        return self._page.personal(name) if name else ""

    def _hides_payment(self, thing: Thing) -> bool:
        """Return True if the payer and the reference belong to a payment that the user may not see."""
        is_operation = thing.kind in _OF_OPERATIONS and thing.found.about.startswith(ID_PREFIXES[Payment.kind])
        return (thing.kind == Kind.REFUND or is_operation) and not self.sees(Payment)

    def _what(self, thing: Thing) -> str:
        kind, status = thing.kind, thing.found.status
        if kind in _OF_OPERATIONS:
            words = _OF_OPERATIONS[kind]
            if self._is_own_request(thing):
                words = _("%(operation)s: waits for another person's approval")
            return str(words) % {"operation": display.operation_name(status)}
        if kind == Kind.PAID_TWICE:
            count = thing.payments
            return ngettext(
                "order paid %(count)d time", "order paid %(count)d times: refund what is too much", count
            ) % {"count": count}
        return str(_WORDS.get((kind, status)) or _WORDS[kind, ""])

    def _url(self, thing: Thing) -> str:
        """Return the URL of the object that the row is about."""
        site = self._site
        if thing.order is not None and thing.kind == Kind.WITHOUT_PAYMENT:
            seen = may_view(site, self._request, thing.order.model)
            return display.change_url(site, thing.order.model, thing.order.pk) if seen else ""
        if thing.kind == Kind.PAID_TWICE:
            return f"{display.list_url(site, Payment)}?{urlencode({'q': thing.found.reference})}"
        return display.change_url(site, todo.MODELS[thing.kind], thing.found.thing)

    def _action(self, thing: Thing) -> tuple[StrOrPromise, str] | None:
        """Return the action that ends it, if this user may do it. The page of the action checks permissions again."""
        found, site, request = thing.found, self._site, self._request
        if thing.kind == Kind.PAYOUT and may(request, "create_payout"):
            return _("Pay again"), f"{display.page_url(site, Payout, 'add')}?{urlencode({'again': found.thing})}"
        if thing.kind in _REFUNDED and found.about and may(request, "refund_payment"):
            address = display.page_url(site, Payment, "refund", found.about)
            again = f"?{urlencode({AGAIN: found.thing})}" if address and thing.kind == Kind.REFUND else ""
            return _REFUNDED[thing.kind], address + again
        if thing.kind == Kind.UNPAID and thing.order and may_view(site, request, thing.order.model):
            return _("Open the order"), display.change_url(site, thing.order.model, thing.order.pk)
        url = display.change_url(site, Operation, found.thing)
        if thing.kind == Kind.APPROVE:
            return (_("See the request") if self._is_own_request(thing) else _("Approve or reject")), url
        if thing.kind in (Kind.DECIDE, Kind.UNKNOWN) and self._decides:
            return (_("Decide") if thing.kind == Kind.DECIDE else _("Look it up")), url
        if thing.kind == Kind.REFUSED:
            return _("See the request"), url
        return None


def _free(thing: Thing) -> Thing:
    """Return the thing of a person who is gone without that person."""
    return replace(thing, found=thing.found._replace(assignee=None, assignee_name=None))


def problems(page: AccountPage, report: AccountReport) -> list[Tile]:
    return list(page.problems(report, only=None if any(map(page.sees, REPAIRED_BY)) else OUTAGES))


def head(site: AdminSite, request: HttpRequest, differences: list[Thing]) -> dict[str, Any]:
    """Return the first rows for the overview, urgent ones first, and their number in all."""
    mine = TodoRows(site, request)
    if not mine.is_open():
        return {"todo": None}
    found = todo.things(mine.asked(), differences)
    # Show urgent rows first, because informative rows may be older and many.
    first = sorted(found, key=lambda thing: not mine.is_urgent(thing))[:HEAD]
    return {
        "todo": {
            "rows": mine.rows(first),
            "count": min(len(found), todo.SHOWN),
            "is_cut": len(found) > todo.SHOWN,
            "has_more": len(found) > HEAD,
            "url": url(site, **mine._chosen()),
            "post_to": url(site),
            "may_handle": mine.may_handle,
            "back": "overview",
            "snoozes": handling.SNOOZES,
        }
    }


def url(site: AdminSite, **parameters: str) -> str:
    """Return the list's URL, with the parameters that have a value."""
    given = {name: value for name, value in parameters.items() if value}
    found = display.list_url(site, Todo)
    return f"{found}?{urlencode(given)}" if given and found else found


def _may_see(site: AdminSite, request: HttpRequest, model: type[Model]) -> bool:
    """Return True if the user may see rows of a merchant's model, which may have no page in the admin."""
    if site.is_registered(model):
        return may_view(site, request, model)
    # As in Django's admin, the permission to change rows includes the permission to see them.
    names = (get_permission_codename(verb, model._meta) for verb in ("view", "change"))
    return request.user.is_active and any(request.user.has_perm(f"{model._meta.app_label}.{name}") for name in names)
