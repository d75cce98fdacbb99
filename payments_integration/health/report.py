"""The report of ``examine``. Its field names are the keys of the JSON of ``payments_health`` (docs/api/health.md).

Ages are in seconds; None if there is nothing to measure. Counts stop at 10,000.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from payments_integration.signals import Reason

#: The version of the structure. It grows if a key is removed or changes its meaning, but not if a key is added.
VERSION = 1


@dataclass(frozen=True, slots=True)
class Waiting:
    """The number of waiting rows, and the time that the oldest has waited."""

    count: int = 0
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """The events after the newest delivered one, which reconciliation found, and the time over which it did."""

    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work that continues without a person."""

    #: Age of the oldest row of all kinds.
    age_seconds: float | None
    #: Events that are stored but not applied.
    pending: Waiting
    #: Events and changes of status that are not dispatched yet.
    undispatched: Waiting
    #: Events that are held until their reconciliation window is complete, and dispatched then.
    held: Waiting
    #: Objects that are due to be read by GET.
    refreshes: Waiting
    #: Operations that are due to be sent or resolved.
    operations: Waiting


@dataclass(frozen=True, slots=True)
class Operations:
    """Open operations by state. Unlike ``Backlog.operations``, they include operations that are due later."""

    due: Waiting
    unknown: Waiting
    needs_person: Waiting
    awaiting_approval: Waiting


@dataclass(frozen=True, slots=True)
class Events:
    """Events that need attention. ``parked`` also counts parked changes of status."""

    not_applied: Waiting
    parked: Waiting
    quarantined: Waiting


@dataclass(frozen=True, slots=True)
class Lag:
    """The time from creation to receipt by webhook, on one clock, for the newest deliveries of the last day."""

    median_seconds: float | None = None
    longest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The passes of one kind, without skipped passes."""

    #: Time since the last pass began.
    age_seconds: float | None = None
    state: str = ""
    error: str = ""
    #: Time since the last done pass began.
    done_age_seconds: float | None = None
    #: Passes that failed or were killed since the last done pass, among the last hundred passes.
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Runs:
    events: Run
    objects: Run
    full: Run
    balances: Run
    #: The passes over objects that swept the lists, and full resyncs. They are also among the passes of their kinds.
    sweeps: Run


@dataclass(frozen=True, slots=True)
class Drift:
    """The objects that differed in the last sweep with drift within a week, and the number that was repaired."""

    drifted: int = 0
    repaired: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    id: str
    url: str
    status: str
    #: What is wrong with the endpoint; empty if nothing is.
    problem: str
    secret_is_known: bool
    secret_is_readable: bool
    secret_age_seconds: float | None
    #: The time for which the old secret is still valid after a rotation.
    previous_secret_seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs attention: what it is, how many rows it concerns, and what to do."""

    code: Reason
    count: int
    message: str
    action: str


@dataclass(frozen=True, slots=True)
class AccountStatistics:
    #: Time since an event was last received, by webhook or reconciliation; None: no event of the last 31 days.
    last_event_age_seconds: float | None
    last_webhook_age_seconds: float | None
    #: Events created in the last day, by the way they were first received. At most 1,000 events are read.
    webhooks_last_day: int
    recovered_last_day: int
    recovered_since_webhook: Recovered
    webhook_lag: Lag
    backlog: Backlog
    operations: Operations
    events: Events
    #: The error if the provider refused, or did not answer, the newest pass or operation; empty if it succeeded.
    provider_error: str
    #: Objects whose reads failed many times in a row.
    refreshes_failing: int
    #: Time since the provider's first answer or delivery; None: there was none.
    contact_age_seconds: float | None
    #: Age of the watermark: events are complete up to it. None: no pass was ever complete.
    watermark_age_seconds: float | None
    #: True if a full resync is due.
    resync_due: bool
    #: Time that the resync has waited without a process that does it.
    resync_waits_seconds: float | None
    #: The provider's clock minus ours.
    clock_offset_seconds: float | None
    #: Says why the API key seems to belong to another project than the mirror; empty if it does not.
    key_replaced: str
    runs: Runs
    drift: Drift
    endpoints: list[Endpoint]
    #: Erasures that wait for an open operation or a pending event.
    erasures: Waiting
    #: Orders that were paid for more than once. Their age counts from the time when this was found.
    paid_twice: Waiting


@dataclass(frozen=True, slots=True)
class AccountReport:
    statistics: AccountStatistics
    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class RemovedAccount:
    """Unfinished work of an account that is no longer in the setting."""

    operations: int = 0
    events: int = 0
    refreshes: int = 0
    erasures: int = 0
    #: Payments, payouts and refunds whose status may still change.
    open_objects: int = 0
    #: Webhook endpoints to which the provider still delivers.
    endpoints: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    checked_at: datetime
    accounts: dict[str, AccountReport] = field(default_factory=dict)
    #: By alias; empty if only one account was examined.
    removed_accounts: dict[str, RemovedAccount] = field(default_factory=dict)
    #: Problems that belong to no configured account.
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems and not any(account.problems for account in self.accounts.values())

    def as_json(self) -> dict[str, Any]:
        """Return the report in the documented structure, with plain values."""
        return {
            "version": VERSION,
            "ok": self.ok,
            "checked_at": self.checked_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "accounts": {
                alias: {
                    "ok": not account.problems,
                    **dataclasses.asdict(account.statistics),
                    "problems": [dataclasses.asdict(problem) for problem in account.problems],
                }
                for alias, account in self.accounts.items()
            },
            "removed_accounts": {alias: dataclasses.asdict(rows) for alias, rows in self.removed_accounts.items()},
            "problems": [dataclasses.asdict(problem) for problem in self.problems],
        }
