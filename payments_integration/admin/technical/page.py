"""Show the technical state of an account: events, backlog, reconciliation and webhook endpoints.

Each panel is shown to users who may see the rows that it counts, and links to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Model
from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration import health
from payments_integration.admin.flows import reconcile
from payments_integration.admin.shared import display
from payments_integration.admin.shared.buttons import hidden
from payments_integration.admin.shared.sections import ROWS, Page, Table
from payments_integration.admin.technical import setup
from payments_integration.admin.technical.account_page import TECHNICAL, AccountPage, Tile, anchor_of
from payments_integration.enums import ActiveStatus
from payments_integration.health import AccountReport, Run, Waiting
from payments_integration.models import (
    AccountState,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    Operation,
    OperationState,
    ReconciliationRun,
    RefreshReason,
    RunKind,
    RunState,
    WebhookEndpoint,
)
from payments_integration.signals import Reason
from payments_integration.validation.text import StrOrPromise


@dataclass(frozen=True, slots=True)
class Line:
    label: StrOrPromise
    value: str
    url: str = ""


class TechnicalState(AccountPage):
    in_tiles = AccountPage.in_tiles | {Reason.DISPATCH_PARKED, Reason.EVENT_QUARANTINED, Reason.EVENT_NOT_APPLIED}

    def context(self) -> dict[str, Any]:
        if not self.account:
            return {"empty": True}
        as_of, found = timezone.now(), health.examine(self.account).accounts[self.account]
        steps = setup.steps(self._site, self._request, self.account, found)
        if steps:
            self.in_tiles |= setup.STEPS
        return {
            "steps": steps,
            "account": self.account,
            "accounts": list(self._accounts()),
            "as_of": display.moment(as_of),
            "tiles": list(self._tiles(found)),
            "problems": list(self.problems(found)),
            "deliveries": list(self._deliveries(found)),
            "backlog": list(self._backlog(found)),
            "runs": list(self._runs(found)),
            "drift": self._drift(found),
            "runs_url": reconcile.url(self._site, self._request),
            "kinds": reconcile.KINDS,
            "endpoints": list(self._endpoints(found)),
            "without_pages": list(self._without_pages()),
            "hidden": hidden(self._site, self._request, *TECHNICAL),
            "endpoints_shown": self.sees(WebhookEndpoint),
        }

    def _tiles(self, found: AccountReport) -> Iterator[Tile]:
        if not self.sees(Event):
            return
        events = found.statistics.events
        stuck: tuple[tuple[StrOrPromise, Waiting, str], ...] = (
            (_("Parked: a receiver keeps failing"), events.parked, EventState.PARKED.value),
            (_("Events in quarantine"), events.quarantined, EventState.QUARANTINED.value),
            (_("Events that could not be applied"), events.not_applied, EventState.PENDING.value),
        )
        for label, waiting, state in stuck:
            age = display.duration(waiting.age_seconds) if waiting.count else ""
            yield Tile(label, waiting.count, age, self.events_link(waiting.count, state))

    def _deliveries(self, found: AccountReport) -> Iterator[Line]:
        numbers = found.statistics
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
            yield Line(_("Events are complete up to"), _ago(numbers.watermark_age_seconds))
            offset_seconds = numbers.clock_offset_seconds
            if offset_seconds is not None:
                yield Line(_("The provider's clock minus ours"), display.seconds(offset_seconds, signed=True))
            state = AccountState.objects.filter(pk=self.account).first()
            if state is not None and state.swept_at:
                yield Line(_("Objects were last compared"), display.moment(state.swept_at))

    def _backlog(self, found: AccountReport) -> Iterator[Tile]:
        backlog = found.statistics.backlog
        waits: tuple[tuple[StrOrPromise, Waiting, type[Model], dict[str, Any]], ...] = (
            (_("Events to apply"), backlog.pending, Event, {"state": EventState.PENDING.value}),
            (_("Changes to dispatch"), backlog.undispatched, Event, {"state": EventState.APPLIED.value}),
            (_("Events held until the end of their window"), backlog.held, Event, {"state": EventState.HELD.value}),
            (_("Objects to refresh"), backlog.refreshes, DueRefresh, {}),
            (_("Operations to send or resolve"), backlog.operations, Operation, {"state": OperationState.DUE.value}),
        )
        for label, waiting, model, filters in waits:
            if self.sees(model):
                url = self.events_link(waiting.count, **filters) if model is Event else self.link(model, **filters)
                yield Tile(label, waiting.count, display.duration(waiting.age_seconds), url)

    def _without_pages(self) -> Iterator[tuple[str, Table]]:
        """Yield (id, table) of the rows that have no pages of their own. Each table is read through an index."""
        page = Page(self._site, self._request)

        def about(row: Any) -> str:
            return display.object_link(self._site, row.account, row.object_kind, row.object_id)

        if self.sees(DueRefresh):
            due = DueRefresh.objects.filter(account=self.account).order_by("due_at", "pk")
            yield _table(
                DueRefresh,
                _("Objects to refresh"),
                due[:ROWS],
                {
                    _("Object"): about,
                    _("Reason"): lambda row: display.text(dict(RefreshReason.choices).get(row.reason, row.reason)),
                    _("Due at"): lambda row: display.moment(row.due_at),
                    _("Attempts"): lambda row: str(row.attempts),
                    _("Error"): lambda row: page.personal(row.error),
                },
            )
        if self.sees(Erasure):
            erasures = Erasure.objects.filter(account=self.account)
            # Newer erasures must not hide an old one that is not finished.
            unfinished = erasures.filter(done_at=None).order_by("requested_at", "pk")[:ROWS]
            newest = erasures.exclude(done_at=None).order_by("-pk")[:ROWS]
            yield _table(
                Erasure,
                _("Erasures"),
                [*unfinished, *newest][:ROWS],
                {
                    _("Object"): about,
                    _("Requested at"): lambda row: display.moment(row.requested_at),
                    _("Done at"): lambda row: display.moment(row.done_at),
                    _("Requested by"): lambda row: display.actor(row.actor),
                },
            )

    def _runs(self, found: AccountReport) -> Iterator[tuple[str, str, str, str, str, str]]:
        """Yield (kind, URL of its list, state, age of the last run, age of the last complete run, failures since)."""
        if not self.sees(ReconciliationRun):
            return
        runs = found.statistics.runs
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

    def _drift(self, found: AccountReport) -> str:
        if not self.sees(ReconciliationRun):
            return ""
        drift = found.statistics.drift
        if not drift.drifted:
            return _("No drift in the last week.")
        return _(
            "The last sweep with drift, within a week: %(drifted)s objects differed, %(repaired)s were repaired."
        ) % {"drifted": drift.drifted, "repaired": drift.repaired}

    def _endpoints(self, found: AccountReport) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield (link, status, complaint, secret, age of the secret)."""
        if not self.sees(WebhookEndpoint):
            return
        for endpoint in found.statistics.endpoints:
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


def _table(
    model: type[Model], title: StrOrPromise, rows: Iterable[Any], columns: dict[StrOrPromise, Callable[[Any], str]]
) -> tuple[str, Table]:
    cells = [tuple(cell(row) for cell in columns.values()) for row in rows]
    return anchor_of(model), Table(title, tuple(columns), cells, "")


def _ago(seconds: float | None) -> str:
    return display.EMPTY if seconds is None else _("%(duration)s ago") % {"duration": display.duration(seconds)}


def _count(count: int) -> str:
    # Health stops counting at this number.
    return _("%(count)d or more") % {"count": count} if count >= 1_000 else str(count)
