"""The report of ``examine``. Its field names are the keys of the JSON of ``payments_health`` (docs/operate.md).

Ages are in seconds, None if there is nothing. Counts stop at 10,000.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from payments_integration.reasons import Reason

#: Version of the structure. It grows if a key is removed or changes its meaning, not if one is added.
VERSION = 1


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many rows wait, and for how long the oldest has waited."""

    count: int = 0
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work that continues without a person."""

    #: Age of the oldest.
    age_seconds: float | None
    #: Events that are stored and not applied.
    pending: Waiting
    #: Events and changes of status that are not dispatched yet.
    undispatched: Waiting
    #: Events that are dispatched when their window of reconciliation is complete.
    held: Waiting
    #: Objects to be read by GET.
    refreshes: Waiting
    #: Operations to be sent or resolved.
    operations: Waiting


@dataclass(frozen=True, slots=True)
class Operations:
    """Open operations by state. Unlike ``Backlog.operations``, these count whether they are due now or later."""

    due: Waiting
    unknown: Waiting
    needs_person: Waiting
    awaiting_approval: Waiting


@dataclass(frozen=True, slots=True)
class Events:
    """Events that need attention; parked changes of status are counted as well."""

    not_applied: Waiting
    parked: Waiting
    quarantined: Waiting


@dataclass(frozen=True, slots=True)
class Lag:
    """Time from creation to receipt by webhook, on one clock, of the newest deliveries of the last day."""

    median_seconds: float | None = None
    longest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The passes of one kind, without those that were skipped."""

    #: Since the last pass began.
    age_seconds: float | None = None
    state: str = ""
    error: str = ""
    #: Since the last done pass began.
    done_age_seconds: float | None = None
    #: Failures since the last done pass, among the last hundred passes.
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Runs:
    events: Run
    objects: Run
    full: Run
    balances: Run


@dataclass(frozen=True, slots=True)
class Drift:
    """Objects that differed in the last sweep with drift, within a week, and how many of them were repaired."""

    drifted: int = 0
    repaired: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    id: str
    url: str
    status: str
    #: Empty if there is none.
    problem: str
    secret_is_known: bool
    secret_is_readable: bool
    secret_age_seconds: float | None
    #: After a rotation: how long the old secret is still valid.
    previous_secret_seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs attention: what it is, how many there are, and what to do."""

    code: Reason
    count: int
    message: str
    action: str


@dataclass(frozen=True, slots=True)
class AccountStatistics:
    """The state of one account in numbers."""

    #: Since the newest event was received, by webhook or reconciliation; None: no event of the last 31 days.
    last_event_age_seconds: float | None
    last_webhook_age_seconds: float | None
    #: Events created in the last day, by how they were received first (at most 1,000 events are read).
    webhooks_last_day: int
    recovered_last_day: int
    webhook_lag: Lag
    backlog: Backlog
    operations: Operations
    events: Events
    #: The error of the newest pass or operation that the provider refused, or did not answer; empty if it succeeded.
    provider_error: str
    #: Objects that could not be read many times in a row.
    refreshes_failing: int
    #: Age of the watermark, up to which events are complete; None: no pass was ever complete.
    watermark_age_seconds: float | None
    #: Whether a full resync is due, and for how long no process has been doing it.
    resync_due: bool
    resync_waits_seconds: float | None
    #: The provider's clock minus ours.
    clock_offset_seconds: float | None
    #: Why the API key is of another project than the mirror; empty if it is not.
    key_replaced: str
    runs: Runs
    drift: Drift
    endpoints: list[Endpoint]
    #: Erasures that an open operation or a pending event keeps from being finished.
    erasures: Waiting
    #: Orders that were paid for more than once, since they were found.
    paid_twice: Waiting


@dataclass(frozen=True, slots=True)
class AccountReport:
    statistics: AccountStatistics
    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class RemovedAccount:
    """Unfinished work of an account that is not in the setting any more."""

    operations: int = 0
    events: int = 0
    refreshes: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    checked_at: datetime
    accounts: dict[str, AccountReport] = field(default_factory=dict)
    #: By alias; empty if one account was examined.
    removed_accounts: dict[str, RemovedAccount] = field(default_factory=dict)
    #: Problems that belong to no configured account.
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing needs attention."""
        return not self.problems and not any(account.problems for account in self.accounts.values())

    def as_json(self) -> dict[str, Any]:
        """The documented structure, in plain values."""
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
