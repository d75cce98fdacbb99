"""The dashboard of an account: what needs attention, whether events arrive, and how much money moved.

Each panel is shown to users who may see the rows that it counts, and links to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf
from payments_integration.admin.dashboard import search, statistics
from payments_integration.admin.dashboard.money import MoneyPanels
from payments_integration.admin.dashboard.statistics import Statistics
from payments_integration.admin.flows import reconcile
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import may, may_view
from payments_integration.enums import ActiveStatus
from payments_integration.health import Problem, Run, Waiting
from payments_integration.models import (
    AccountState,
    Balance,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    Operation,
    OperationState,
    Payment,
    Payout,
    ReconciliationRun,
    Refund,
    RunKind,
    RunState,
    WebhookEndpoint,
)
from payments_integration.reasons import Reason

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that should be zero."""

    label: StrOrPromise
    count: int
    #: The age of the oldest one; empty if there is none.
    age: str
    url: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a small table."""

    label: StrOrPromise
    value: str
    url: str = ""


#: Each problem that health reports: its label, and the model and filters of the list with its rows.
_PROBLEMS: dict[Reason, tuple[StrOrPromise, type[Model], dict[str, str]]] = {
    Reason.EVENTS_PENDING: (gettext_lazy("events are not applied"), Event, {"state": EventState.PENDING}),
    Reason.EVENTS_UNDISPATCHED: (
        gettext_lazy("changes are not dispatched"),
        Event,
        {"state": EventState.APPLIED},
    ),
    Reason.EVENTS_HELD: (gettext_lazy("events wait for the end of their window"), Event, {"state": EventState.HELD}),
    Reason.DELIVERIES_MISSING: (gettext_lazy("events arrive, but none by webhook"), Event, {}),
    Reason.OPERATIONS_DUE: (gettext_lazy("operations wait to be sent"), Operation, {"state": OperationState.DUE}),
    Reason.REFRESHES_DUE: (gettext_lazy("objects wait to be refreshed"), DueRefresh, {}),
    Reason.REFRESHES_FAIL: (gettext_lazy("objects cannot be refreshed"), DueRefresh, {}),
    Reason.ERASURE_UNFINISHED: (gettext_lazy("erasures are not finished"), Erasure, {}),
    Reason.NEVER_RECONCILED: (gettext_lazy("events were never reconciled"), AccountState, {}),
    Reason.WATERMARK_OLD: (gettext_lazy("events are not complete up to now"), ReconciliationRun, {"kind": "events"}),
    Reason.GAP_TOO_LONG: (gettext_lazy("every object must be compared"), ReconciliationRun, {"kind": "full"}),
    Reason.RUNS_STOPPED: (gettext_lazy("reconciliation has stopped"), ReconciliationRun, {}),
    Reason.RUNS_FAIL: (gettext_lazy("reconciliation keeps failing"), ReconciliationRun, {"state": RunState.FAILED}),
    Reason.API_KEY_REFUSED: (
        gettext_lazy("the provider refuses the API key"),
        ReconciliationRun,
        {"state": RunState.FAILED},
    ),
    Reason.PROVIDER_UNREACHABLE: (
        gettext_lazy("the provider cannot be reached"),
        ReconciliationRun,
        {"state": RunState.FAILED},
    ),
    Reason.PROVIDER_CLOCK: (gettext_lazy("our clock and the provider's differ"), AccountState, {}),
    Reason.NO_ENDPOINT: (gettext_lazy("no webhook endpoint is known"), WebhookEndpoint, {}),
    Reason.ENDPOINT: (gettext_lazy("webhook endpoints need attention"), WebhookEndpoint, {}),
    Reason.SECRET_MISSING: (gettext_lazy("signing secrets are not known"), WebhookEndpoint, {}),
    Reason.SECRET_UNREADABLE: (gettext_lazy("signing secrets cannot be decrypted"), WebhookEndpoint, {}),
}
#: The problems that have a tile of their own.
_IN_TILES = frozenset(
    {
        Reason.OPERATION_NEEDS_RESOLUTION,
        Reason.OPERATION_AWAITS_APPROVAL,
        Reason.OPERATION_UNKNOWN,
        Reason.DISPATCH_PARKED,
        Reason.EVENT_QUARANTINED,
        Reason.EVENT_NOT_APPLIED,
    }
)
#: Statistics are counted only for users who may see one of these models.
_COUNTED_FOR: dict[str, tuple[type[Model], ...]] = {
    "health": (Event, Operation, DueRefresh, Erasure, AccountState, ReconciliationRun, WebhookEndpoint),
    "balances": (Balance,),
    "payments": (Payment,),
    "payouts": (Payout,),
    "refunds": (Refund,),
}


class Dashboard:
    """The dashboard of one account, as one user sees it."""

    def __init__(self, site: AdminSite, request: HttpRequest) -> None:
        self._site = site
        self._request = request
        aliases = conf.aliases()
        asked = request.GET.get("account", "")
        self.account = asked if asked in aliases else next(iter(aliases), "")
        self._several = len(aliases) > 1

    def context(self) -> dict[str, Any]:
        """The context of the dashboard's template."""
        wanted = [name for name, models in _COUNTED_FOR.items() if any(map(self.sees, models))]
        if not self.account or not wanted:
            return {"empty": True, "account": self.account, "search_url": self._search_url()}
        found = statistics.gather(self.account, wanted)
        return {
            "account": self.account,
            "search_url": self._search_url(),
            "accounts": list(self._accounts()),
            "as_of": display.moment(found.as_of),
            "days": len(found.days),
            "tiles": list(self._tiles(found)),
            "problems": list(self._problems(found)),
            "examined": found.health is not None,
            "deliveries": list(self._deliveries(found)),
            "backlog": list(self._backlog(found)),
            "runs": list(self._runs(found)),
            "drift": self._drift(found),
            "runs_url": self._runs_url(),
            "kinds": reconcile.KINDS,
            "endpoints": list(self._endpoints(found)),
            "endpoints_shown": self.sees(WebhookEndpoint),
            "balances": list(self._balances(found)),
            **MoneyPanels(found, self.link, self.sees).context(),
        }

    def sees(self, model: type[Model]) -> bool:
        """Whether the user may see such rows."""
        return may_view(self._site, self._request, model)

    def link(self, model: type[Model], **filters: Any) -> str:
        """The URL of a model's list, filtered; empty if the user may not see it."""
        return self._list(model, **filters, **({"account": self.account} if self._several else {}))

    def _list(self, model: type[Model], **filters: Any) -> str:
        url = display.list_url(self._site, model) if self.sees(model) else ""
        return f"{url}?{urlencode(filters)}" if url and filters else url

    def _accounts(self) -> Iterator[tuple[str, str, bool]]:
        if self._several:
            for alias in conf.aliases():
                yield alias, f"?{urlencode({'account': alias})}", alias == self.account

    def _tiles(self, found: Statistics) -> Iterator[Tile]:
        if found.health is None:
            return
        operations, events = found.health.statistics.operations, found.health.statistics.events
        stuck: tuple[tuple[StrOrPromise, Waiting, type[Model], str], ...] = (
            (_("Operations that a person must decide"), operations.needs_person, Operation, "needs_person"),
            (_("Operations that wait for approval"), operations.awaiting_approval, Operation, "awaiting_approval"),
            (_("Operations with an unknown outcome"), operations.unknown, Operation, "unknown"),
            (_("Parked: a receiver keeps failing"), events.parked, Event, EventState.PARKED),
            (_("Events in quarantine"), events.quarantined, Event, EventState.QUARANTINED),
            (_("Events that could not be applied"), events.not_applied, Event, EventState.PENDING),
        )
        for label, waiting, model, state in stuck:
            if self.sees(model):
                age = display.duration(waiting.age_seconds) if waiting.count else ""
                yield Tile(label, waiting.count, age, self.link(model, state=str(state)))

    def _problems(self, found: Statistics) -> Iterator[Tile]:
        for problem in found.health.problems if found.health is not None else ():
            if problem.code not in _IN_TILES:
                yield from self._problem(problem)

    def _problem(self, problem: Problem) -> Iterator[Tile]:
        label, model, filters = _PROBLEMS.get(problem.code, (problem.message, Operation, {}))
        if self.sees(model):
            yield Tile(label, problem.count, "", self.link(model, **filters))

    def _deliveries(self, found: Statistics) -> Iterator[Line]:
        if found.health is None:
            return
        numbers = found.health.statistics
        if self.sees(Event):
            events = self.link(Event)
            yield Line(_("Last event received"), _ago(numbers.last_event_age_seconds), events)
            yield Line(_("Last event delivered by webhook"), _ago(numbers.last_webhook_age_seconds), events)
            lag = numbers.webhook_lag
            if lag.median_seconds is not None:
                yield Line(_("Webhook delay, median"), display.duration(lag.median_seconds))
                yield Line(_("Webhook delay, longest of the last day"), display.duration(lag.longest_seconds))
            yield Line(_("Delivered by webhook in the last day"), _count(numbers.webhooks_last_day))
            yield Line(_("Found by reconciliation in the last day"), _count(numbers.recovered_last_day))
        if self.sees(AccountState):
            state = self._list(AccountState)
            yield Line(_("Events are complete up to"), _ago(numbers.watermark_age_seconds), state)
            offset_seconds = numbers.clock_offset_seconds
            if offset_seconds is not None:
                yield Line(_("The provider's clock minus ours"), f"{offset_seconds:+.1f} s", state)

    def _backlog(self, found: Statistics) -> Iterator[Tile]:
        if found.health is None:
            return
        backlog = found.health.statistics.backlog
        waits: tuple[tuple[StrOrPromise, Waiting, type[Model], dict[str, Any]], ...] = (
            (_("Events to apply"), backlog.pending, Event, {"state": EventState.PENDING.value}),
            (_("Changes to dispatch"), backlog.undispatched, Event, {"state": EventState.APPLIED.value}),
            (_("Events held until the end of their window"), backlog.held, Event, {"state": EventState.HELD.value}),
            (_("Objects to refresh"), backlog.refreshes, DueRefresh, {}),
            (_("Operations to send or resolve"), backlog.operations, Operation, {"state": OperationState.DUE.value}),
        )
        for label, waiting, model, filters in waits:
            if self.sees(model):
                yield Tile(label, waiting.count, display.duration(waiting.age_seconds), self.link(model, **filters))

    def _runs(self, found: Statistics) -> Iterator[tuple[str, str, str, str, str, str]]:
        """(kind, URL of its list, state, age of the last run, age of the last complete run, failures since)."""
        if found.health is None or not self.sees(ReconciliationRun):
            return
        runs = found.health.statistics.runs
        kinds: tuple[tuple[RunKind, Run], ...] = (
            (RunKind.EVENTS, runs.events),
            (RunKind.OBJECTS, runs.objects),
            (RunKind.FULL, runs.full),
            (RunKind.BALANCES, runs.balances),
        )
        for kind, run in kinds:
            yield (
                str(kind.label),
                self.link(ReconciliationRun, kind=kind.value),
                display.status(run.state, RunState),
                _ago(run.age_seconds),
                _ago(run.done_age_seconds),
                str(run.failures),
            )

    def _drift(self, found: Statistics) -> str:
        if found.health is None or not self.sees(ReconciliationRun):
            return ""
        drift = found.health.statistics.drift
        if not drift.drifted:
            return _("No drift in the last week.")
        return _(
            "The last sweep with drift, within a week: %(drifted)s objects differed, %(repaired)s were repaired."
        ) % {
            "drifted": drift.drifted,
            "repaired": drift.repaired,
        }

    def _search_url(self) -> str:
        return search.url(self._site, self._request)

    def _runs_url(self) -> str:
        allowed = may(self._request, "run_reconciliation") and self._site.is_registered(ReconciliationRun)
        return reconcile.url(self._site) if allowed else ""

    def _endpoints(self, found: Statistics) -> Iterator[tuple[str, str, str, str, str]]:
        """(link, status, complaint, secret, age of the secret)."""
        if found.health is None or not self.sees(WebhookEndpoint):
            return
        for endpoint in found.health.statistics.endpoints:
            if not endpoint.secret_is_known:
                secret = _("not known")
            elif not endpoint.secret_is_readable:
                secret = _("cannot be decrypted")
            else:
                secret = _("known")
            yield (
                display.admin_link(self._site, WebhookEndpoint, endpoint.id, endpoint.url),
                display.status(endpoint.status, ActiveStatus),
                _("needs attention") if endpoint.problem else "",
                secret,
                display.duration(endpoint.secret_age_seconds),
            )

    def _balances(self, found: Statistics) -> Iterator[tuple[str, list[str]]]:
        for row in found.balances:
            amounts = (row.available, row.pending, row.reserve, row.hold, row.debt)
            link = display.admin_link(self._site, Balance, row.pk, row.currency)
            yield link, [display.money(amount, row.currency) for amount in amounts]


def _ago(seconds: float | None) -> str:
    return display.EMPTY if seconds is None else _("%(duration)s ago") % {"duration": display.duration(seconds)}


def _count(count: int) -> str:
    # Health counts no further.
    return _("%(count)d or more") % {"count": count} if count >= 1_000 else str(count)
