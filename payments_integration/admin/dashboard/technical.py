"""The technical state of an account: events, backlog, reconciliation and webhook endpoints.

Each panel is shown to users who may see the rows that it counts, and links to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Model
from django.utils.translation import gettext as _

from payments_integration.admin.dashboard import statistics
from payments_integration.admin.dashboard.account_page import TECHNICAL, AccountPage, Tile
from payments_integration.admin.dashboard.statistics import Statistics
from payments_integration.admin.flows import reconcile
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import hidden, may
from payments_integration.enums import ActiveStatus
from payments_integration.health import Run, Waiting
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Event,
    EventState,
    Operation,
    OperationState,
    ReconciliationRun,
    RunKind,
    RunState,
    WebhookEndpoint,
)
from payments_integration.reasons import Reason

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a small table."""

    label: StrOrPromise
    value: str
    url: str = ""


class TechnicalState(AccountPage):
    """The technical state of one account, as one user sees it."""

    in_tiles = AccountPage.in_tiles | {Reason.DISPATCH_PARKED, Reason.EVENT_QUARANTINED, Reason.EVENT_NOT_APPLIED}

    def context(self) -> dict[str, Any]:
        """The context of the page's template."""
        if not self.account:
            return {"empty": True}
        found = statistics.gather(self.account, ["health"])
        return {
            "account": self.account,
            "accounts": list(self._accounts()),
            "as_of": display.moment(found.as_of),
            "tiles": list(self._tiles(found)),
            "problems": list(self._problems(found)),
            "deliveries": list(self._deliveries(found)),
            "backlog": list(self._backlog(found)),
            "runs": list(self._runs(found)),
            "drift": self._drift(found),
            "runs_url": self._runs_url(),
            "kinds": reconcile.KINDS,
            "endpoints": list(self._endpoints(found)),
            "hidden": hidden(self._site, self._request, *TECHNICAL),
            "endpoints_shown": self.sees(WebhookEndpoint),
        }

    def _tiles(self, found: Statistics) -> Iterator[Tile]:
        if found.health is None or not self.sees(Event):
            return
        events = found.health.statistics.events
        stuck: tuple[tuple[StrOrPromise, Waiting, str], ...] = (
            (_("Parked: a receiver keeps failing"), events.parked, EventState.PARKED),
            (_("Events in quarantine"), events.quarantined, EventState.QUARANTINED),
            (_("Events that could not be applied"), events.not_applied, EventState.PENDING),
        )
        for label, waiting, state in stuck:
            age = display.duration(waiting.age_seconds) if waiting.count else ""
            yield Tile(label, waiting.count, age, self.link(Event, state=str(state)))

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
                yield Line(_("The provider's clock minus ours"), display.seconds(offset_seconds, signed=True), state)

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


def _ago(seconds: float | None) -> str:
    return display.EMPTY if seconds is None else _("%(duration)s ago") % {"duration": display.duration(seconds)}


def _count(count: int) -> str:
    # Health counts no further.
    return _("%(count)d or more") % {"count": count} if count >= 1_000 else str(count)
