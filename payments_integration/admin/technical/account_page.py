"""Show a page about one account as one user sees it, with the problems that health reports for it."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.db.models import Exists, Model
from django.http import HttpRequest
from django.utils.translation import gettext_lazy, ngettext_lazy

from payments_integration import conf
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import may, may_view
from payments_integration.health import AccountReport, Problem
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    Operation,
    OperationState,
    ReconciliationRun,
    RunState,
    StatusChange,
    WebhookEndpoint,
)
from payments_integration.signals import Reason
from payments_integration.validation.text import StrOrPromise


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that should be zero."""

    label: StrOrPromise
    count: int
    #: The age of the oldest row; empty if there is none.
    age: str
    url: str
    #: True if there may be more rows.
    is_cut: bool = False
    #: What to do if it is not zero.
    advice: StrOrPromise = ""


#: What health reports, in words. With singular and plural, they follow the number of rows.
_WORDS: dict[Reason, StrOrPromise] = {
    Reason.EVENTS_PENDING: ngettext_lazy("event is not applied", "events are not applied"),
    Reason.EVENTS_UNDISPATCHED: ngettext_lazy("change is not dispatched", "changes are not dispatched"),
    Reason.EVENTS_HELD: ngettext_lazy(
        "event waits for the end of its window", "events wait for the end of their window"
    ),
    Reason.EVENT_NOT_APPLIED: ngettext_lazy("event could not be applied", "events could not be applied"),
    Reason.EVENT_QUARANTINED: ngettext_lazy("event is in quarantine", "events are in quarantine"),
    Reason.DISPATCH_PARKED: ngettext_lazy(
        "event is parked: a receiver keeps failing", "events are parked: a receiver keeps failing"
    ),
    Reason.DELIVERIES_MISSING: gettext_lazy("events arrive, but none by webhook"),
    Reason.OPERATIONS_DUE: ngettext_lazy("operation waits to be sent", "operations wait to be sent"),
    Reason.REFRESHES_DUE: ngettext_lazy("object waits to be refreshed", "objects wait to be refreshed"),
    Reason.REFRESHES_FAIL: ngettext_lazy("object cannot be refreshed", "objects cannot be refreshed"),
    Reason.ERASURE_UNFINISHED: ngettext_lazy("erasure is not finished", "erasures are not finished"),
    Reason.NEVER_RECONCILED: gettext_lazy("events were never reconciled"),
    Reason.WATERMARK_OLD: gettext_lazy("events are not complete up to now"),
    Reason.GAP_TOO_LONG: gettext_lazy("every object must be compared"),
    Reason.RUNS_STOPPED: gettext_lazy("reconciliation has stopped"),
    Reason.RUNS_FAIL: gettext_lazy("reconciliation keeps failing"),
    Reason.API_KEY_REFUSED: gettext_lazy("the provider refuses the API key"),
    Reason.PROVIDER_UNREACHABLE: gettext_lazy("the provider cannot be reached"),
    Reason.PROVIDER_CLOCK: gettext_lazy("our clock and the provider's differ"),
    Reason.KEY_REPLACED: gettext_lazy(
        "The API key is of another project than these rows, so nothing is sent or applied. Put the old key back, "
        "configure the new one under an alias of its own, or run manage.py payments_forget."
    ),
    Reason.NO_ENDPOINT: gettext_lazy("no webhook endpoint is known"),
    Reason.ENDPOINT: ngettext_lazy("webhook endpoint needs attention", "webhook endpoints need attention"),
    Reason.SECRET_MISSING: ngettext_lazy("signing secret is not known", "signing secrets are not known"),
    Reason.SECRET_UNREADABLE: ngettext_lazy(
        "signing secret cannot be decrypted", "signing secrets cannot be decrypted"
    ),
}
#: The list with the rows of each problem: its model and filters.
_LISTS: dict[Reason, tuple[type[Model], dict[str, str]]] = {
    Reason.EVENTS_PENDING: (Event, {"state": EventState.PENDING}),
    Reason.EVENTS_UNDISPATCHED: (Event, {"state": EventState.APPLIED}),
    Reason.EVENTS_HELD: (Event, {"state": EventState.HELD}),
    Reason.EVENT_NOT_APPLIED: (Event, {"state": EventState.PENDING}),
    Reason.EVENT_QUARANTINED: (Event, {"state": EventState.QUARANTINED}),
    Reason.DISPATCH_PARKED: (Event, {"state": EventState.PARKED}),
    Reason.DELIVERIES_MISSING: (Event, {}),
    Reason.OPERATIONS_DUE: (Operation, {"state": OperationState.DUE}),
    Reason.REFRESHES_DUE: (DueRefresh, {}),
    Reason.REFRESHES_FAIL: (DueRefresh, {}),
    Reason.ERASURE_UNFINISHED: (Erasure, {}),
    Reason.NEVER_RECONCILED: (AccountState, {}),
    Reason.WATERMARK_OLD: (ReconciliationRun, {"kind": "events"}),
    Reason.GAP_TOO_LONG: (ReconciliationRun, {"kind": "full"}),
    Reason.RUNS_STOPPED: (ReconciliationRun, {}),
    Reason.RUNS_FAIL: (ReconciliationRun, {"state": RunState.FAILED}),
    Reason.API_KEY_REFUSED: (ReconciliationRun, {"state": RunState.FAILED}),
    Reason.PROVIDER_UNREACHABLE: (ReconciliationRun, {"state": RunState.FAILED}),
    Reason.PROVIDER_CLOCK: (AccountState, {}),
    Reason.KEY_REPLACED: (AccountState, {}),
    Reason.NO_ENDPOINT: (WebhookEndpoint, {}),
    Reason.ENDPOINT: (WebhookEndpoint, {}),
    Reason.SECRET_MISSING: (WebhookEndpoint, {}),
    Reason.SECRET_UNREADABLE: (WebhookEndpoint, {}),
}
#: Users who may see one of these models may see the page of the technical state.
TECHNICAL: tuple[type[Model], ...] = (
    Event, Operation, DueRefresh, Erasure, AccountState, ReconciliationRun, WebhookEndpoint,
)  # fmt: skip


#: During these, pages may be out of date, and nothing can be sent: everybody sees them.
OUTAGES = frozenset({Reason.API_KEY_REFUSED, Reason.PROVIDER_UNREACHABLE})

#: These models have no pages of their own. The page of the technical state shows their rows.
WITHOUT_PAGES: tuple[type[Model], ...] = (AccountState, DueRefresh, Erasure)


def may_see(site: AdminSite, request: HttpRequest, model: type[Model]) -> bool:
    if model in WITHOUT_PAGES:
        return any(may(request, f"{verb}_{model._meta.model_name}") for verb in ("view", "change"))
    return may_view(site, request, model)


def may_see_technical_state(site: AdminSite, request: HttpRequest) -> bool:
    return any(may_see(site, request, model) for model in TECHNICAL)


def anchor_of(model: type[Model]) -> str:
    """Return the id of the page's part that shows such rows."""
    return "pi-deliveries" if model is AccountState else f"pi-rows-{model._meta.model_name}"


def technical_url(site: AdminSite) -> str:
    return display.page_url(site, ReconciliationRun, "technical")


class AccountPage:
    """A page about one account. It links only to rows that the user may see."""

    #: The problems without a line on this page, because a tile of the overview or of this page shows them.
    in_tiles: frozenset[Reason] = frozenset(
        {
            Reason.OPERATION_NEEDS_RESOLUTION,
            Reason.OPERATION_AWAITS_APPROVAL,
            Reason.OPERATION_UNKNOWN,
            Reason.PAID_TWICE,
        }
    )

    def __init__(self, site: AdminSite, request: HttpRequest) -> None:
        self._site = display.seen(site, request)
        self._request = request
        aliases = conf.aliases()
        asked = request.GET.get("account", "")
        self.account = asked if asked in aliases else next(iter(aliases), "")
        self._several = len(aliases) > 1

    def sees(self, model: type[Model]) -> bool:
        return may_see(self._site, self._request, model)

    def link(self, model: type[Model], **filters: Any) -> str:
        """Return the URL of a model's list, filtered, of this account; empty if the user may not see it."""
        if not self.sees(model):
            return ""
        if model in WITHOUT_PAGES:
            chosen = f"?{urlencode(self._chosen())}" if self._several else ""
            return f"{technical_url(self._site)}{chosen}#{anchor_of(model)}"
        url, filters = display.list_url(self._site, model), {**filters, **self._chosen()}
        return f"{url}?{urlencode(filters)}" if filters else url

    def events_link(self, count: int, state: str) -> str:
        """Return the URL of the events in this state; of the changes of status, if only those are in it.

        ``count``: of both. Users who may not see the changes get the events.
        """
        in_it = {"account": self.account, "state": state}
        changes = StatusChange.objects.filter(~Exists(Event.objects.filter(**in_it)), **in_it)
        may_be_changes = count and state in (EventState.APPLIED, EventState.PARKED) and self.sees(StatusChange)
        return self.link(StatusChange if may_be_changes and changes.exists() else Event, state=state)

    def _chosen(self) -> dict[str, str]:
        """Return the query parameter of the account; none if there is no choice."""
        return {"account": self.account} if self._several else {}

    def _accounts(self) -> Iterator[tuple[str, str, bool]]:
        """Yield (name, URL of this page with its other parameters, is shown) of each account, if there is a choice."""
        if self._several:
            for alias in conf.aliases():
                given = {**self._request.GET.dict(), "account": alias}
                yield conf.account_name(alias), f"?{urlencode(given)}", alias == self.account

    def problems(self, report: AccountReport, *, only: Container[Reason] | None = None) -> Iterator[Tile]:
        for problem in report.problems:
            if problem.code not in self.in_tiles and (only is None or problem.code in only):
                yield from self._problem(problem)

    def _problem(self, problem: Problem) -> Iterator[Tile]:
        label = _WORDS.get(problem.code, problem.message)
        model, filters = _LISTS.get(problem.code, (Operation, {}))
        if self.sees(model) or problem.code in OUTAGES:
            is_counted = False
            with contextlib.suppress(TypeError):
                # Only labels with singular and plural can be formatted. For the others, the count says nothing.
                label %= problem.count
                is_counted = True
            url = (
                self.events_link(problem.count, **filters)
                if model is Event and filters
                else self.link(model, **filters)
            )
            yield Tile(label, problem.count if is_counted else 0, "", url)
