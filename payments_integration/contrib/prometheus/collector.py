"""Read the state of each account from the database with each scrape, as metric families.

The figures are the same as in ``payments_health``. Labels are aliases of accounts, states, kinds, currencies and
codes, but never an id, a reference or data of a payer.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from django.db import Error, connections, router
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from payments_integration import money
from payments_integration.enums import ActiveStatus
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import Reason

if TYPE_CHECKING:
    from payments_integration.health import AccountReport, Problem, Report, Waiting
    from payments_integration.models import Balance

logger = get_logger(__name__)

UP = "payments_up"
_OPERATIONS = ("due", "unknown", "needs_person", "awaiting_approval")
_RUNS = ("events", "objects", "full", "balances")
_PARTS = ("available", "pending", "reserve", "hold", "debt")
#: Codes that only ``attention`` uses, and codes that belong to no configured account.
_NOT_OF_ACCOUNTS = {
    Reason.DEFERRED_REFUSED,
    Reason.DEFERRED_REJECTED,
    Reason.LEDGER_INCOMPLETE,
    Reason.ORDER_UNPAID,
    Reason.DATABASE,
    Reason.REMOVED_ACCOUNT,
}

#: Every family with its labels and its description (# HELP).
FAMILIES: dict[str, tuple[tuple[str, ...], str]] = {
    UP: (
        (),
        "1 if the database could be read for this scrape; 0: its figures are missing, and payments_problems says so.",
    ),
    "payments_scrape_seconds": ((), "How long reading the database took."),
    "payments_problems": (
        ("account", "code"),
        "What payments_health reports: how many there are by code, 0 if all is well.",
    ),
    "payments_backlog_events": (
        ("account", "state"),
        "Events (applied and parked: also status changes) that are not finished, by state; at most 10000.",
    ),
    "payments_backlog_age_seconds": (("account", "state"), "Age of the oldest of them since receipt; 0 if none."),
    "payments_operations": (("account", "state"), "Open operations by state; at most 10000."),
    "payments_operations_age_seconds": (("account", "state"), "Age of the oldest of them; 0 if none."),
    "payments_operations_due": (("account",), "Operations that are due now to be sent or resolved."),
    "payments_operations_due_age_seconds": (("account",), "For how long the oldest of them has been due; 0 if none."),
    "payments_refreshes_due": (("account",), "Objects that are due to be read from the provider."),
    "payments_refreshes_due_age_seconds": (("account",), "For how long the oldest has been due; 0 if none."),
    "payments_refreshes_failing": (("account",), "Objects that could not be read ten times in a row."),
    "payments_watermark_age_seconds": (
        ("account",),
        "Up to how long ago all events are known; +Inf: no pass was ever complete.",
    ),
    "payments_last_event_age_seconds": (
        ("account", "source"),
        "Since the newest event was received, by webhook or in any way; +Inf: none in the last 31 days.",
    ),
    "payments_events_last_day": (
        ("account", "source"),
        "Events created within a day by how they arrived first (of the newest 1000).",
    ),
    "payments_webhook_lag_seconds": (
        ("account", "statistic"),
        "From creation to delivery, of the last day's newest deliveries: median and longest; 0 without any.",
    ),
    "payments_run_age_seconds": (
        ("account", "kind"),
        "Since the last pass of reconciliation began; +Inf: never.",
    ),
    "payments_run_done_age_seconds": (
        ("account", "kind"),
        "Since the last pass that succeeded began; +Inf: never.",
    ),
    "payments_run_failures": (("account", "kind"), "Passes that failed since the last that succeeded."),
    "payments_drift_objects": (
        ("account", "state"),
        "Objects that differed in the last sweep with drift within a week, and how many of them were repaired.",
    ),
    "payments_resync_due": (("account",), "1 if every object must be compared, because events may be lost."),
    "payments_endpoints": (("account", "status"), "Webhook endpoints by status."),
    "payments_endpoint_problems": (("account",), "Endpoints that are disabled, gone or lack event types."),
    "payments_balance_minor_units": (
        ("account", "currency", "part"),
        "The balance as the mirror has it, in minor units.",
    ),
    "payments_currency_exponent": (
        ("currency",),
        "Divide minor units by ten to the power of this: 0 for CLP, otherwise 2.",
    ),
    "payments_clock_offset_seconds": (("account",), "The provider's clock minus ours; missing until it is measured."),
    "payments_erasures_waiting": (("account",), "Erasures that are not finished."),
    "payments_removed_account_rows": (
        ("account", "kind"),
        "Unfinished rows of accounts that are not in the setting any more.",
    ),
}


@dataclass(slots=True)
class _Families:
    """The families of one scrape, in the order of ``FAMILIES``."""

    by_name: dict[str, GaugeMetricFamily] = field(
        default_factory=lambda: {
            name: GaugeMetricFamily(name, text, labels=labels) for name, (labels, text) in FAMILIES.items()
        }
    )

    def add(self, name: str, value: float, *labels: str) -> None:
        self.by_name[name].add_metric(labels, value)

    def add_waiting(self, name: str, waiting: Waiting, *labels: str, age: str) -> None:
        self.add(name, waiting.count, *labels)
        self.add(age, waiting.age_seconds or 0.0, *labels)


class PaymentsCollector(Collector):
    """A collector that reads the database with each scrape. Takes no arguments.

    A scrape takes eight statements for up to forty accounts, and one more if accounts were removed. If the database
    cannot be read, it has ``payments_up 0`` and the problem ``database`` instead of an error, so that other metrics of
    the registry still arrive.
    """

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the families without values, so that registering does not read the database."""
        return list(_Families().by_name.values())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        # Import models only here: the registry may be filled before Django is ready.
        from payments_integration import health  # noqa: PLC0415
        from payments_integration.models import Balance, Event  # noqa: PLC0415

        families = _Families()
        began = time.monotonic()
        connection = connections[router.db_for_write(Event)]
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        was_open = connection.connection is not None
        try:
            report = health.examine()
            balances = list(Balance.objects.filter(account__in=list(report.accounts), gone_at=None).order_by("pk"))
        except Error as error:
            # Log only the type: the message may show the database's address.
            logger.error("A scrape could not read the database: %s", type(error).__name__)
            report, balances = health.unreachable(timezone.now(), error), []
        finally:
            # A thread outside a request, such as one of prometheus_client's own server, closes no connections itself.
            if not was_open:
                connection.close()
        families.add(UP, 0 if any(problem.code == Reason.DATABASE for problem in report.problems) else 1)
        families.add("payments_scrape_seconds", time.monotonic() - began)
        _add_report(families, report)
        _add_balances(families, balances)
        yield from families.by_name.values()


def _add_report(families: _Families, report: Report) -> None:
    for alias, account in report.accounts.items():
        _add_problems(families, alias, account.problems, set(Reason) - _NOT_OF_ACCOUNTS)
        _add_account(families, alias, account)
    _add_problems(families, "", report.problems, {Reason.DATABASE, Reason.REMOVED_ACCOUNT})
    for alias, rows in report.removed_accounts.items():
        for kind, count in asdict(rows).items():
            families.add("payments_removed_account_rows", count, alias, kind)


def _add_problems(families: _Families, alias: str, problems: list[Problem], codes: set[Reason]) -> None:
    counts = {problem.code: problem.count for problem in problems}
    for code in sorted(codes):
        families.add("payments_problems", counts.get(code, 0), alias, code)


def _add_account(families: _Families, alias: str, account: AccountReport) -> None:
    found = account.statistics
    backlog, events = found.backlog, found.events
    for state, waiting in (
        ("pending", backlog.pending),
        ("not_applied", events.not_applied),
        ("held", backlog.held),
        ("applied", backlog.undispatched),
        ("parked", events.parked),
        ("quarantined", events.quarantined),
    ):
        families.add_waiting("payments_backlog_events", waiting, alias, state, age="payments_backlog_age_seconds")
    for state in _OPERATIONS:
        waiting = getattr(found.operations, state)
        families.add_waiting("payments_operations", waiting, alias, state, age="payments_operations_age_seconds")
    for name, waiting in (
        ("payments_operations_due", backlog.operations),
        ("payments_refreshes_due", backlog.refreshes),
    ):
        families.add_waiting(name, waiting, alias, age=f"{name}_age_seconds")
    families.add("payments_refreshes_failing", found.refreshes_failing, alias)
    families.add("payments_erasures_waiting", found.erasures.count, alias)
    _add_events(families, alias, account)
    for kind in _RUNS:
        run = getattr(found.runs, kind)
        families.add("payments_run_age_seconds", _or_never(run.age_seconds), alias, kind)
        families.add("payments_run_done_age_seconds", _or_never(run.done_age_seconds), alias, kind)
        families.add("payments_run_failures", run.failures, alias, kind)
    families.add("payments_drift_objects", found.drift.drifted, alias, "drifted")
    families.add("payments_drift_objects", found.drift.repaired, alias, "repaired")
    families.add("payments_resync_due", float(found.resync_due), alias)
    # The provider chooses the statuses: a new one must not become a label by itself.
    statuses = Counter(row.status if row.status in ActiveStatus.values else "other" for row in found.endpoints)
    for status in (*ActiveStatus.values, "other"):
        families.add("payments_endpoints", statuses[status], alias, status)
    families.add("payments_endpoint_problems", sum(bool(row.problem) for row in found.endpoints), alias)


def _add_events(families: _Families, alias: str, account: AccountReport) -> None:
    found = account.statistics
    families.add("payments_watermark_age_seconds", _or_never(found.watermark_age_seconds), alias)
    families.add("payments_last_event_age_seconds", _or_never(found.last_webhook_age_seconds), alias, "webhook")
    families.add("payments_last_event_age_seconds", _or_never(found.last_event_age_seconds), alias, "any")
    families.add("payments_events_last_day", found.webhooks_last_day, alias, "webhook")
    families.add("payments_events_last_day", found.recovered_last_day, alias, "reconciliation")
    families.add("payments_webhook_lag_seconds", found.webhook_lag.median_seconds or 0.0, alias, "median")
    families.add("payments_webhook_lag_seconds", found.webhook_lag.longest_seconds or 0.0, alias, "longest")
    if found.clock_offset_seconds is not None:
        families.add("payments_clock_offset_seconds", found.clock_offset_seconds, alias)


def _add_balances(families: _Families, balances: list[Balance]) -> None:
    for balance in balances:
        for part in _PARTS:
            families.add(
                "payments_balance_minor_units", getattr(balance, part), balance.account, balance.currency, part
            )
    for currency in sorted({balance.currency for balance in balances}):
        families.add("payments_currency_exponent", money.exponent(currency), currency)


def _or_never(age: float | None) -> float:
    return math.inf if age is None else age
