"""What ``examine`` returns. The names are those of the JSON that ``payments_health`` prints (docs/8-operate.md).

Ages are seconds, None where there is nothing. Counts stop at 10,000.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from payments_integration.reasons import Reason

#: Of the structure: grows when a name goes or changes its meaning, not when one comes.
VERSION = 1


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many rows wait, and since when the oldest does."""

    count: int = 0
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is to be done without a person."""

    #: Of the oldest of them all.
    age_seconds: float | None
    #: Events that are stored and not applied.
    pending: Waiting
    #: Events and changes of status that receivers have not been told.
    untold: Waiting
    #: Events that are told when their window of reconciliation is complete.
    held: Waiting
    #: Objects to be read by GET.
    refreshes: Waiting
    #: Operations to be sent or resolved.
    operations: Waiting


@dataclass(frozen=True, slots=True)
class Operations:
    unknown: Waiting
    needs_person: Waiting
    awaiting_approval: Waiting


@dataclass(frozen=True, slots=True)
class Events:
    """Events that do not go on by themselves; changes of status that are parked count with them."""

    not_applied: Waiting
    parked: Waiting
    quarantined: Waiting


@dataclass(frozen=True, slots=True)
class Lag:
    """From creation to receipt by webhook, on one clock, of the newest deliveries of the last day."""

    median_seconds: float | None = None
    longest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The passes of one kind, those that were skipped left out."""

    #: Since the last one began.
    age_seconds: float | None = None
    state: str = ""
    error: str = ""
    #: Since the last one that was done began.
    done_age_seconds: float | None = None
    #: Failures since then, of the last hundred passes.
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Runs:
    events: Run
    objects: Run
    full: Run
    balances: Run


@dataclass(frozen=True, slots=True)
class Drift:
    """Objects that the last sweep that found any, within a week, found to differ, and those of them it mended."""

    drifted: int = 0
    repaired: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    id: str
    url: str
    status: str
    #: What is wrong with it; empty: nothing.
    complaint: str
    secret_is_known: bool
    secret_is_readable: bool
    secret_age_seconds: float | None
    #: After a rotation: how long the old secret is still valid.
    previous_secret_seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs a person: what, how many, and what to do."""

    code: Reason
    count: int
    message: str
    action: str


@dataclass(frozen=True, slots=True)
class AccountFigures:
    """The state of one account, in numbers."""

    #: Since the newest event was received, through whichever door; None: none that was created in the last 31 days.
    last_event_age_seconds: float | None
    last_webhook_age_seconds: float | None
    #: Events created in the last day, by the door that brought them first (at most 1,000 are looked at).
    webhooks_last_day: int
    recovered_last_day: int
    webhook_lag: Lag
    backlog: Backlog
    operations: Operations
    events: Events
    #: Objects whose reading has failed many times.
    refreshes_failing: int
    #: Events are complete up to so long ago; None: no pass was ever complete.
    watermark_age_seconds: float | None
    #: Whether every object must be compared, and since when nobody is at it.
    resync_due: bool
    resync_waits_seconds: float | None
    #: The provider's clock minus ours.
    clock_offset_seconds: float | None
    runs: Runs
    drift: Drift
    endpoints: list[Endpoint]
    #: Wishes for erasure that something open keeps from being finished.
    erasures: Waiting


@dataclass(frozen=True, slots=True)
class AccountReport:
    figures: AccountFigures
    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class RemovedAccount:
    """What is unfinished under an alias that is no longer configured."""

    operations: int = 0
    events: int = 0
    refreshes: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    checked_at: datetime
    accounts: dict[str, AccountReport] = field(default_factory=dict)
    #: By alias; left out when one account was asked for.
    removed_accounts: dict[str, RemovedAccount] = field(default_factory=dict)
    #: Those of no configured account.
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing needs a person."""
        return not self.problems and not any(account.problems for account in self.accounts.values())

    def as_json(self) -> dict[str, Any]:
        """The documented structure, of plain values."""
        return {
            "version": VERSION,
            "ok": self.ok,
            "checked_at": self.checked_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "accounts": {
                alias: {
                    "ok": not account.problems,
                    **dataclasses.asdict(account.figures),
                    "problems": [dataclasses.asdict(problem) for problem in account.problems],
                }
                for alias, account in self.accounts.items()
            },
            "removed_accounts": {alias: dataclasses.asdict(rows) for alias, rows in self.removed_accounts.items()},
            "problems": [dataclasses.asdict(problem) for problem in self.problems],
        }
