"""What may need a person, and what that person does: the codes of ``attention`` and of ``payments_health``."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A stable short name. ``attention`` sends it when it happens, ``payments_health`` shows it while it lasts."""

    # Sent as ``attention``.
    DEFERRED_REJECTED = "deferred_rejected"
    ENDPOINT = "endpoint"
    EVENT_NOT_APPLIED = "event_not_applied"
    EVENT_QUARANTINED = "event_quarantined"
    GAP_TOO_LONG = "gap_too_long"
    OPERATION_AWAITS_APPROVAL = "operation_awaits_approval"
    OPERATION_NEEDS_PERSON = "operation_needs_person"
    PROVIDER_CLOCK = "provider_clock"
    SECRET_MISSING = "secret_missing"  # noqa: S105  (a name)
    TELLING_PARKED = "telling_parked"

    # Shown by ``payments_health`` alone.
    DATABASE = "database"
    DELIVERIES_MISSING = "deliveries_missing"
    ERASURE_WAITS = "erasure_waits"
    EVENTS_HELD = "events_held"
    EVENTS_PENDING = "events_pending"
    EVENTS_UNTOLD = "events_untold"
    NEVER_RECONCILED = "never_reconciled"
    NO_ENDPOINT = "no_endpoint"
    OPERATION_UNKNOWN = "operation_unknown"
    OPERATIONS_DUE = "operations_due"
    REFRESHES_DUE = "refreshes_due"
    REFRESHES_FAIL = "refreshes_fail"
    REMOVED_ACCOUNT = "removed_account"
    RUNS_FAIL = "runs_fail"
    RUNS_STOPPED = "runs_stopped"
    SECRET_UNREADABLE = "secret_unreadable"  # noqa: S105  (a name)
    WATERMARK_OLD = "watermark_old"


_WORKER = "see that the worker and beat, or the cron job of payments_process, run; the log says what stops them"

#: What to do, and where.
ACTIONS: dict[Reason, str] = {
    Reason.DEFERRED_REJECTED: "read the refusal (admin: Operations), and ask again under a new key where it still "
    "makes sense",
    Reason.ENDPOINT: "mend it in the provider's dashboard, or create another (payments_endpoints create) and forget "
    "this one (payments_endpoints delete)",
    Reason.EVENT_NOT_APPLIED: "a mistake of this version: upgrade the app; it is then applied by itself (admin: "
    "Events; the log has the traceback)",
    Reason.EVENT_QUARANTINED: "look at it (admin: Events, state quarantined); after an upgrade that understands it "
    "press Replay",
    Reason.GAP_TOO_LONG: "wait for the full comparison, or start it: payments_reconcile --full",
    Reason.OPERATION_NEEDS_PERSON: "settle it (admin: Operations, state “a person must decide”): look it up first",
    Reason.PROVIDER_CLOCK: "check the clock of this server (NTP); deliveries are refused at five minutes",
    Reason.SECRET_MISSING: "rotate it: payments_endpoints rotate; deliveries cannot be verified until then",
    Reason.TELLING_PARKED: "mend the receiver (admin: Events and Status changes, state parked: the traceback), then "
    "press Replay",
    Reason.DATABASE: "bring the database back, or migrate it: manage.py migrate",
    Reason.DELIVERIES_MISSING: "check the endpoint's address, TLS and firewall: events come by reconciliation only",
    Reason.ERASURE_WAITS: "see what is open of it (admin: Erasures, Operations) and settle that",
    Reason.EVENTS_HELD: "see why reconciliation does not complete its window (admin: Reconciliation runs)",
    Reason.EVENTS_PENDING: _WORKER,
    Reason.EVENTS_UNTOLD: f"look for failing receivers (admin: Events, state applied); {_WORKER}",
    Reason.NEVER_RECONCILED: "run payments_reconcile, and see that it is in the schedule",
    Reason.NO_ENDPOINT: "create it: payments_endpoints create, or put its secret into WEBHOOK_SECRETS",
    Reason.OPERATION_AWAITS_APPROVAL: "have somebody else than who asked approve or reject it (admin: Operations)",
    Reason.OPERATION_UNKNOWN: "it is being resolved; look it up (admin: Operations) where you cannot wait",
    Reason.OPERATIONS_DUE: _WORKER,
    Reason.REFRESHES_DUE: _WORKER,
    Reason.REFRESHES_FAIL: "see why they cannot be read (admin: Due refreshes)",
    Reason.REMOVED_ACCOUNT: "configure the account again until its work is settled",
    Reason.RUNS_FAIL: "see the error (admin: Reconciliation runs); the provider may be down, or the API key wrong",
    Reason.RUNS_STOPPED: _WORKER,
    Reason.SECRET_UNREADABLE: "put the missing key back into ENCRYPTION_KEYS, or rotate: payments_endpoints rotate",
    Reason.WATERMARK_OLD: "see why reconciliation does not complete (admin: Reconciliation runs); the provider "
    "deletes events after 30 days",
}
