"""Turn statistics into problems: decide what needs attention, and what can still wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import datetime, timedelta

from django.db.models import Value
from django.utils import timezone

from payments_integration import conf
from payments_integration.attention import ACTIONS
from payments_integration.db import statements
from payments_integration.db.refusals import described
from payments_integration.enums import OPEN_PAYMENT_STATUSES, OPEN_PAYOUT_STATUSES, OPEN_REFUND_STATUSES
from payments_integration.exceptions import KEY_REFUSED, UNREACHABLE, public_error
from payments_integration.health.backlogs import LIMIT
from payments_integration.health.report import (
    AccountReport,
    AccountStatistics,
    Problem,
    RemovedAccount,
    Report,
    Waiting,
)
from payments_integration.health.statistics import PARTS, read_statistics
from payments_integration.models import (
    OPEN_OPERATION_STATES,
    AccountState,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    Operation,
    Payment,
    Payout,
    Refund,
    StatusChange,
    WebhookEndpoint,
)
from payments_integration.reconciliation import UNREADABLE
from payments_integration.signals import Reason

#: Seconds. Deliveries are refused if the clocks differ by five minutes; the alert comes earlier.
CLOCK_ALERT = 60.0
#: Seconds. Reconciliation runs every few minutes, but a pass may be slow, or fail now and then.
RUN_ALERT = 3600.0
#: Seconds. A sweep is due every day, and passes without one are done although no sweep ends.
SWEEP_ALERT = timedelta(days=2).total_seconds()
#: Seconds. The provider may be down for a while; an outcome that stays unknown for longer needs attention.
UNKNOWN_ALERT = 3600.0
ERASURE_ALERT = timedelta(days=1).total_seconds()
#: If deliveries have arrived before, this number of events without a single delivery is a problem: the events of
#: a day, or what passes found over an hour. After an outage of ours, one pass finds as many.
MIN_RECOVERED = 10

#: The number of a removed account's operations that are compared with the configured accounts.
_NEWEST_OPERATIONS = 20

#: The states of events and changes whose handlers are yet to be called.
UNFINISHED = (EventState.PENDING, EventState.HELD, EventState.APPLIED, EventState.PARKED)


def examine(account: str | None = None) -> Report:
    """Examine one account, or all accounts, including accounts that were removed from the setting.

    Takes eight statements for up to forty accounts, one more if accounts were removed, and seven for one account.
    Raises ImproperlyConfigured for an account that is not in the setting. Errors of the database pass through.
    """
    now = timezone.now()
    accounts = {
        alias: AccountReport(statistics, _merged(_problems(alias, statistics)))
        for alias, statistics in read_statistics(conf.aliases(account), now).items()
    }
    removed = _removed_accounts() if account is None else {}
    renamed = _renamed(removed) if removed else {}
    return Report(now, accounts, removed, _merged(_removed_problems(removed, renamed)))


def unreachable(now: datetime, error: BaseException) -> Report:
    """Report that the database could not be read: the error's class and code, as its text may show an address."""
    message = f"the database could not be read: {described(error)}"
    return Report(now, problems=[_problem(Reason.DATABASE, 1, message)])


def format_duration(seconds: float) -> str:
    """Return a duration in its largest fitting unit, such as ``3 min``."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _merged(problems: Iterable[Problem]) -> list[Problem]:
    """Merge the problems of each code into one, because a metric is named by its account and code."""
    merged: dict[Reason, Problem] = {}
    for problem in problems:
        known = merged.setdefault(problem.code, problem)
        if known is not problem:
            count, message = known.count + problem.count, f"{known.message}; {problem.message}"
            merged[problem.code] = Problem(problem.code, count, message, problem.action)
    return list(merged.values())


def _problem(code: Reason, count: int, message: str) -> Problem:
    return Problem(code, count, message, ACTIONS[code])


def _problems(account: str, statistics: AccountStatistics) -> Iterator[Problem]:
    if statistics.key_replaced:
        yield _problem(Reason.KEY_REPLACED, 1, statistics.key_replaced)
    yield from _attention(statistics)
    yield from _backlog(statistics)
    yield from _reconciliation(statistics)
    yield from _provider(statistics)
    yield from _deliveries(account, statistics)
    if (offset := statistics.clock_offset_seconds) is not None and abs(offset) > CLOCK_ALERT:
        direction = "ahead of" if offset > 0 else "behind"
        yield _problem(
            Reason.PROVIDER_CLOCK, 1, f"the provider's clock is {format_duration(abs(offset))} {direction} ours"
        )
    if (statistics.erasures.age_seconds or 0.0) > ERASURE_ALERT:
        yield _waiting_problem(Reason.ERASURE_UNFINISHED, statistics.erasures, "erasures are not finished")


def _attention(statistics: AccountStatistics) -> Iterator[Problem]:
    """Yield problems of work that continues only after a person acts."""
    operations, events = statistics.operations, statistics.events
    for code, waiting, what in (
        (Reason.OPERATION_NEEDS_RESOLUTION, operations.needs_person, "operations need a resolution by a person"),
        (Reason.OPERATION_AWAITS_APPROVAL, operations.awaiting_approval, "operations wait for approval"),
        (Reason.DISPATCH_PARKED, events.parked, "events or changes are parked: receivers keep failing"),
        (Reason.EVENT_QUARANTINED, events.quarantined, "events are quarantined: they cannot be understood"),
        (Reason.EVENT_NOT_APPLIED, events.not_applied, "events could not be applied"),
        (Reason.PAID_TWICE, statistics.paid_twice, "orders were paid for more than once"),
    ):
        if waiting.count:
            yield _waiting_problem(code, waiting, what)
    if (operations.unknown.age_seconds or 0.0) > UNKNOWN_ALERT:
        yield _waiting_problem(Reason.OPERATION_UNKNOWN, operations.unknown, "operations have an unknown outcome")


def _backlog(statistics: AccountStatistics) -> Iterator[Problem]:
    """Yield problems of work that should continue by itself, but waits too long."""
    settings, backlog = conf.current(), statistics.backlog
    window = settings.REORDER_WINDOW if settings.PROCESSING == "celery" else 0
    for code, waiting, held_back, what in (
        (Reason.EVENTS_PENDING, backlog.pending, window, "events are not applied"),
        (Reason.EVENTS_UNDISPATCHED, backlog.undispatched, 0, "changes are not dispatched"),
        (Reason.EVENTS_HELD, backlog.held, 0, "events wait until their window is complete"),
        (Reason.REFRESHES_DUE, backlog.refreshes, 0, "objects are due to be read"),
        (Reason.OPERATIONS_DUE, backlog.operations, 0, "operations are due to be sent or resolved"),
    ):
        if (waiting.age_seconds or 0.0) > settings.BACKLOG_ALERT + held_back:
            yield _waiting_problem(code, waiting, what)
    if statistics.refreshes_failing:
        count = statistics.refreshes_failing
        yield _problem(Reason.REFRESHES_FAIL, count, f"{_number(count)} objects cannot be read")


def _reconciliation(statistics: AccountStatistics) -> Iterator[Problem]:
    if statistics.watermark_age_seconds is None:
        yield _problem(Reason.NEVER_RECONCILED, 1, "events have never been reconciled completely")
    elif statistics.watermark_age_seconds > RUN_ALERT:
        message = f"events are complete only up to {format_duration(statistics.watermark_age_seconds)} ago"
        yield _problem(Reason.WATERMARK_OLD, 1, message)
    runs = statistics.runs
    is_late = (statistics.resync_waits_seconds or 0.0) > conf.current().BACKLOG_ALERT or runs.full.failures
    if statistics.resync_due and is_late:
        yield _problem(Reason.GAP_TOO_LONG, 1, "events may be lost; a full comparison of every object is due")
    for name, run in (("events", runs.events), ("objects", runs.objects), ("balances", runs.balances)):
        if run.age_seconds is None:
            # The checks of the watermark cover events.
            if run is not runs.events and (statistics.contact_age_seconds or 0.0) > RUN_ALERT:
                yield _problem(Reason.RUNS_STOPPED, 1, f"the reconciliation of {name} never ran")
        elif run.age_seconds > RUN_ALERT:
            message = f"the last reconciliation of {name} began {format_duration(run.age_seconds)} ago"
            yield _problem(Reason.RUNS_STOPPED, 1, message)
        elif run.failures and (run.done_age_seconds is None or run.done_age_seconds > RUN_ALERT):
            message = f"the reconciliation of {name} keeps failing ({first_line(public_error(run.error))})"
            yield _problem(Reason.RUNS_FAIL, run.failures, message)
    yield from _sweeps(statistics)


def _sweeps(statistics: AccountStatistics) -> Iterator[Problem]:
    passes, sweeps = statistics.runs.objects, statistics.runs.sweeps
    age = statistics.contact_age_seconds if sweeps.done_age_seconds is None else sweeps.done_age_seconds
    if age is None or age <= SWEEP_ALERT or statistics.resync_due:
        return  # a resync that is due replaces the sweep
    if passes.age_seconds is not None and passes.age_seconds <= RUN_ALERT:
        error = first_line(public_error(sweeps.error))
        message = f"no sweep of all objects was complete for {format_duration(age)} ({error})"
        yield _problem(Reason.RUNS_FAIL, max(1, sweeps.failures), message)


def _provider(statistics: AccountStatistics) -> Iterator[Problem]:
    """Yield the problem that the newest request of a pass or an operation met.

    One failure is enough for an alert, because every call fails until this is repaired.
    """
    error = statistics.provider_error
    if error.startswith(KEY_REFUSED):
        yield _problem(Reason.API_KEY_REFUSED, 1, f"the provider refuses the API key ({first_line(error)})")
    elif error.startswith(UNREACHABLE):
        yield _problem(Reason.PROVIDER_UNREACHABLE, 1, f"the provider cannot be reached ({first_line(error)})")


def _deliveries(account: str, statistics: AccountStatistics) -> Iterator[Problem]:
    configured = bool(conf.account(account).webhook_secrets)
    if not statistics.endpoints and not configured:
        yield _problem(Reason.NO_ENDPOINT, 1, "no webhook endpoint is known, and no secret is configured")
    for endpoint in statistics.endpoints:
        if endpoint.problem:
            yield _problem(Reason.ENDPOINT, 1, f"{endpoint.id}: {endpoint.problem}")
        elif not endpoint.secret_is_known and not configured:
            yield _problem(Reason.SECRET_MISSING, 1, f"{endpoint.id}: its signing secret is not known")
        if not endpoint.secret_is_readable:
            yield _problem(Reason.SECRET_UNREADABLE, 1, f"{endpoint.id}: {UNREADABLE}")
    count = statistics.recovered_last_day
    if not (statistics.endpoints or configured) or not count:
        return
    if statistics.last_webhook_age_seconds is None:
        message = f"{_number(count)} events of the last day exist, and none was ever delivered by webhook"
        yield _problem(Reason.DELIVERIES_MISSING, count, message)
    elif count >= MIN_RECOVERED and not statistics.webhooks_last_day:
        message = f"none of the {_number(count)} events of the last day was delivered by webhook"
        yield _problem(Reason.DELIVERIES_MISSING, count, message)
    else:
        missing = statistics.recovered_since_webhook
        if missing.count >= MIN_RECOVERED and missing.seconds >= RUN_ALERT:
            message = f"none of the newest {_number(missing.count)} events was delivered by webhook"
            yield _problem(Reason.DELIVERIES_MISSING, missing.count, message)


def _removed_accounts() -> dict[str, RemovedAccount]:
    """Return the unfinished work of accounts that are no longer in the setting, by alias."""
    known = list(conf.current().ACCOUNTS)
    parts = [
        rows.exclude(account__in=known).order_by().annotate(what=Value(what)).values_list("account", "what")[:LIMIT]
        for what, rows in (
            ("state", AccountState.objects.all()),
            ("operations", Operation.objects.filter(state__in=OPEN_OPERATION_STATES)),
            ("events", Event.objects.filter(state__in=UNFINISHED)),
            ("events", StatusChange.objects.filter(state__in=UNFINISHED)),
            ("refreshes", DueRefresh.objects.all()),
            ("erasures", Erasure.objects.filter(done_at=None)),
            ("open_objects", Payment.objects.filter(status__in=OPEN_PAYMENT_STATUSES)),
            ("open_objects", Payout.objects.filter(status__in=OPEN_PAYOUT_STATUSES)),
            ("open_objects", Refund.objects.filter(status__in=OPEN_REFUND_STATUSES)),
            ("endpoints", WebhookEndpoint.objects.filter(deleted_at=None, gone_at=None)),
        )
    ]
    counts = Counter(statements.union_of(parts, using=parts[0].db, convert=True))
    return {
        alias: RemovedAccount(*(counts[alias, kind.name] for kind in fields(RemovedAccount)))
        for alias in sorted({alias for alias, _ in counts})
    }


def _renamed(removed: Iterable[str]) -> dict[str, str]:
    """Map removed aliases to the configured alias of the same account at the provider."""
    fingerprints = {conf.fingerprint(alias): alias for alias in conf.current().ACCOUNTS}
    newest = [
        Operation.objects.filter(account=alias)
        .order_by("-created_at", "-pk")
        .values_list("account", "sent_to")[:_NEWEST_OPERATIONS]
        for alias in list(removed)[:PARTS]
    ]
    found = statements.union_of(newest, using=newest[0].db, convert=True)
    return {alias: fingerprints[sent_to] for alias, sent_to in found if sent_to in fingerprints}


def _removed_problems(removed: dict[str, RemovedAccount], renamed: dict[str, str]) -> Iterator[Problem]:
    if removed and not conf.current().ACCOUNTS:
        message = f"no account is configured, and the database has rows of {', '.join(removed)}"
        yield _problem(Reason.REMOVED_ACCOUNT, len(removed), message)
    for alias, rows in removed.items():
        found = {
            "open operations": rows.operations,
            "unfinished events": rows.events,
            "open erasures": rows.erasures,
            "open payments, payouts and refunds": rows.open_objects,
            "webhook endpoints": rows.endpoints,
        }
        if any(found.values()):
            has = ", ".join(f"{_number(count)} {what}" for what, count in found.items() if count)
            message = f"the account {alias} is not configured any more and has {has}"
            yield _problem(Reason.REMOVED_ACCOUNT, sum(found.values()), message)
    for old, new in renamed.items():
        message = f"the account {old} seems to be called {new} now: run payments_rename_account {old} {new}"
        yield _problem(Reason.REMOVED_ACCOUNT, 1, message)


def _waiting_problem(code: Reason, waiting: Waiting, what: str) -> Problem:
    since = f", the oldest for {format_duration(waiting.age_seconds)}" if waiting.age_seconds is not None else ""
    return _problem(code, waiting.count, f"{_number(waiting.count)} {what}{since}")


def _number(count: int) -> str:
    return f"{LIMIT} or more" if count >= LIMIT else str(count)


def first_line(text: str) -> str:
    """Return the beginning of an error that may have several lines."""
    return (text.splitlines() or ["no error recorded"])[0][:200]
