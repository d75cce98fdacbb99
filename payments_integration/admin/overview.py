"""What a person looks at first in the morning: what needs a hand, whether events come, and how the money went.

Each panel is shown to those who may see the rows that it counts, and leads to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration import conf
from payments_integration.admin import display, figures, running
from payments_integration.admin.buttons import may
from payments_integration.admin.figures import Figures
from payments_integration.admin.spans import span
from payments_integration.admin.takings import Takings
from payments_integration.enums import ActiveStatus
from payments_integration.health import Problem
from payments_integration.health.report import Run, Waiting
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
    """One number that should be zero."""

    label: StrOrPromise
    count: int
    #: Since when the oldest waits; empty where nothing does.
    age: str
    url: str


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a small table."""

    label: StrOrPromise
    value: str
    url: str = ""


#: What health calls a problem, in a few words, and where the rows are. Those that have a tile are left out.
_PROBLEMS: dict[Reason, tuple[StrOrPromise, type[Model], dict[str, str]]] = {
    Reason.EVENTS_PENDING: (gettext_lazy("events are not applied"), Event, {"state": EventState.PENDING}),
    Reason.EVENTS_UNTOLD: (gettext_lazy("changes are not told to receivers"), Event, {"state": EventState.APPLIED}),
    Reason.EVENTS_HELD: (gettext_lazy("events wait for their window"), Event, {"state": EventState.HELD}),
    Reason.DELIVERIES_MISSING: (gettext_lazy("events came, and none of them by webhook"), Event, {}),
    Reason.OPERATIONS_DUE: (gettext_lazy("operations wait to be sent"), Operation, {"state": OperationState.DUE}),
    Reason.REFRESHES_DUE: (gettext_lazy("objects wait to be read"), DueRefresh, {}),
    Reason.REFRESHES_FAIL: (gettext_lazy("objects cannot be read"), DueRefresh, {}),
    Reason.ERASURE_WAITS: (gettext_lazy("erasures are not finished"), Erasure, {}),
    Reason.NEVER_RECONCILED: (gettext_lazy("events were never reconciled"), AccountState, {}),
    Reason.WATERMARK_OLD: (gettext_lazy("events are not complete up to now"), ReconciliationRun, {"kind": "events"}),
    Reason.GAP_TOO_LONG: (gettext_lazy("every object must be compared"), ReconciliationRun, {"kind": "full"}),
    Reason.RUNS_STOPPED: (gettext_lazy("reconciliation has stopped"), ReconciliationRun, {}),
    Reason.RUNS_FAIL: (gettext_lazy("reconciliation keeps failing"), ReconciliationRun, {"state": RunState.FAILED}),
    Reason.PROVIDER_CLOCK: (gettext_lazy("our clock and the provider's differ"), AccountState, {}),
    Reason.NO_ENDPOINT: (gettext_lazy("no webhook endpoint is known"), WebhookEndpoint, {}),
    Reason.ENDPOINT: (gettext_lazy("webhook endpoints need attention"), WebhookEndpoint, {}),
    Reason.SECRET_MISSING: (gettext_lazy("signing secrets are not known"), WebhookEndpoint, {}),
    Reason.SECRET_UNREADABLE: (gettext_lazy("signing secrets cannot be decrypted"), WebhookEndpoint, {}),
}
_IN_TILES = frozenset(
    {
        Reason.OPERATION_NEEDS_PERSON,
        Reason.OPERATION_AWAITS_APPROVAL,
        Reason.OPERATION_UNKNOWN,
        Reason.TELLING_PARKED,
        Reason.EVENT_QUARANTINED,
        Reason.EVENT_NOT_APPLIED,
    }
)
#: Which figures are counted for whom: those who may see one of these models.
_COUNTED_FOR: dict[str, tuple[type[Model], ...]] = {
    "health": (Event, Operation, DueRefresh, Erasure, AccountState, ReconciliationRun, WebhookEndpoint),
    "balances": (Balance,),
    "payments": (Payment,),
    "payouts": (Payout,),
    "refunds": (Refund,),
}


class Overview:
    """The overview of one account as one person sees it."""

    def __init__(self, site: AdminSite, request: HttpRequest) -> None:
        self._site = site
        self._request = request
        aliases = conf.aliases()
        asked = request.GET.get("account", "")
        self.account = asked if asked in aliases else next(iter(aliases), "")
        self._several = len(aliases) > 1

    def context(self) -> dict[str, Any]:
        """What the template shows."""
        wanted = [name for name, models in _COUNTED_FOR.items() if any(map(self.sees, models))]
        if not self.account or not wanted:
            return {"empty": True, "account": self.account}
        found = figures.gather(self.account, wanted)
        takings = Takings(found, self.link, self.sees)
        return {
            "account": self.account,
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
            "kinds": running.KINDS,
            "endpoints": list(self._endpoints(found)),
            "endpoints_shown": self.sees(WebhookEndpoint),
            "balances": list(self._balances(found)),
            **takings.context(),
        }

    def sees(self, model: type[Model]) -> bool:
        """Whether the person may see such rows at all."""
        if not self._site.is_registered(model):
            return False
        return self._site.get_model_admin(model).has_view_permission(self._request)

    def link(self, model: type[Model], **filters: Any) -> str:
        """The list of a model, filtered; empty for those who may not see it."""
        return self._list(model, **filters, **({"account": self.account} if self._several else {}))

    def _list(self, model: type[Model], **filters: Any) -> str:
        url = display.list_url(self._site, model) if self.sees(model) else ""
        return f"{url}?{urlencode(filters)}" if url and filters else url

    def _accounts(self) -> Iterator[tuple[str, str, bool]]:
        if self._several:
            for alias in conf.aliases():
                yield alias, f"?{urlencode({'account': alias})}", alias == self.account

    def _tiles(self, found: Figures) -> Iterator[Tile]:
        if found.health is None:
            return
        operations, events = found.health.figures.operations, found.health.figures.events
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
                age = span(waiting.age_seconds) if waiting.count else ""
                yield Tile(label, waiting.count, age, self.link(model, state=str(state)))

    def _problems(self, found: Figures) -> Iterator[Tile]:
        for problem in found.health.problems if found.health is not None else ():
            if problem.code not in _IN_TILES:
                yield from self._problem(problem)

    def _problem(self, problem: Problem) -> Iterator[Tile]:
        label, model, filters = _PROBLEMS.get(problem.code, (problem.message, Operation, {}))
        if self.sees(model):
            yield Tile(label, problem.count, "", self.link(model, **filters))

    def _deliveries(self, found: Figures) -> Iterator[Line]:
        if found.health is None:
            return
        numbers = found.health.figures
        if self.sees(Event):
            events = self.link(Event)
            yield Line(_("Last event received"), _ago(numbers.last_event_age_seconds), events)
            yield Line(_("Last one delivered by webhook"), _ago(numbers.last_webhook_age_seconds), events)
            lag = numbers.webhook_lag
            if lag.median_seconds is not None:
                yield Line(_("Webhook lag, typical"), span(lag.median_seconds))
                yield Line(_("Webhook lag, longest of the last day"), span(lag.longest_seconds))
            yield Line(_("Delivered by webhook in the last day"), _count(numbers.webhooks_last_day))
            yield Line(_("Found by reconciliation in the last day"), _count(numbers.recovered_last_day))
        if self.sees(AccountState):
            state = self._list(AccountState)
            yield Line(_("Events are complete up to"), _ago(numbers.watermark_age_seconds), state)
            offset_seconds = numbers.clock_offset_seconds
            if offset_seconds is not None:
                yield Line(_("The provider's clock less ours"), f"{offset_seconds:+.1f} s", state)

    def _backlog(self, found: Figures) -> Iterator[Tile]:
        if found.health is None:
            return
        backlog = found.health.figures.backlog
        waits: tuple[tuple[StrOrPromise, Waiting, type[Model], dict[str, Any]], ...] = (
            (_("Events to apply"), backlog.pending, Event, {"state": EventState.PENDING.value}),
            (_("Changes to tell"), backlog.untold, Event, {"state": EventState.APPLIED.value}),
            (_("Events held until their window is in"), backlog.held, Event, {"state": EventState.HELD.value}),
            (_("Objects to read"), backlog.refreshes, DueRefresh, {}),
            (_("Operations to send or resolve"), backlog.operations, Operation, {"state": OperationState.DUE.value}),
        )
        for label, waiting, model, filters in waits:
            if self.sees(model):
                yield Tile(label, waiting.count, span(waiting.age_seconds), self.link(model, **filters))

    def _runs(self, found: Figures) -> Iterator[tuple[str, str, str, str, str, str]]:
        """(kind, its list, state, when it began, when one was last done, failures since)."""
        if found.health is None or not self.sees(ReconciliationRun):
            return
        runs = found.health.figures.runs
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

    def _drift(self, found: Figures) -> str:
        if found.health is None or not self.sees(ReconciliationRun):
            return ""
        drift = found.health.figures.drift
        if not drift.drifted:
            return _("No drift in the last week.")
        return _(
            "The last sweep that found drift, within a week: %(drifted)s objects differed, %(repaired)s mended."
        ) % {
            "drifted": drift.drifted,
            "repaired": drift.repaired,
        }

    def _runs_url(self) -> str:
        allowed = may(self._request, "run_reconciliation") and self._site.is_registered(ReconciliationRun)
        return running.url(self._site) if allowed else ""

    def _endpoints(self, found: Figures) -> Iterator[tuple[str, str, str, str, str]]:
        """(address, status, complaint, secret, its age)."""
        if found.health is None or not self.sees(WebhookEndpoint):
            return
        for endpoint in found.health.figures.endpoints:
            if not endpoint.secret_is_known:
                secret = _("not known")
            elif not endpoint.secret_is_readable:
                secret = _("cannot be decrypted")
            else:
                secret = _("known")
            yield (
                display.admin_link(self._site, WebhookEndpoint, endpoint.id, endpoint.url),
                display.status(endpoint.status, ActiveStatus),
                _("needs attention") if endpoint.complaint else "",
                secret,
                span(endpoint.secret_age_seconds),
            )

    def _balances(self, found: Figures) -> Iterator[tuple[str, list[str]]]:
        for row in found.balances:
            amounts = (row.available, row.pending, row.reserve, row.hold, row.debt)
            link = display.admin_link(self._site, Balance, row.pk, row.currency)
            yield link, [display.money(amount, row.currency) for amount in amounts]


def _ago(seconds: float | None) -> str:
    return display.EMPTY if seconds is None else _("%(span)s ago") % {"span": span(seconds)}


def _count(count: int) -> str:
    # As many as health looks at.
    return _("%(count)d or more") % {"count": count} if count >= 1_000 else str(count)
