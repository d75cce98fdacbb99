"""The state of reconciliation per account, the record of each pass, and what is due or found."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from payments_integration.dates import moment
from payments_integration.db import fields
from payments_integration.models.base import Claimable, ObjectRef, Row


class AccountState(Claimable):
    """How far an account's events are complete, and how much the clocks differ. The running pass claims it."""

    account: str = fields.ExactCharField(_("account"), max_length=64, primary_key=True)
    #: All events created before this (the provider's clock) are in the inbox; null: no pass was complete yet.
    watermark: datetime | None = fields.DateTimeField(_("watermark"), null=True, blank=True)
    #: The present window and its last page, to resume an interrupted pass.
    window_from: datetime | None = fields.DateTimeField(_("from"), null=True, blank=True)
    window_to: datetime | None = fields.DateTimeField(_("to"), null=True, blank=True)
    cursor: str = fields.ExactCharField(default="", blank=True)
    #: The provider's clock minus ours in seconds; null: not measured yet.
    clock_offset: float | None = fields.FloatField(_("clock offset"), null=True, blank=True)
    #: The same by the last Date, if that was too far from our clock to be believed; null: it was not.
    doubtful_offset: float | None = fields.FloatField(null=True, blank=True, editable=False)
    #: The provider's clock at the first answer, or the ``t`` of the first valid signature. Stored once.
    first_contact_at: datetime | None = fields.DateTimeField(null=True, blank=True)
    #: When the first full resync was complete; null: an answer may bring objects from before the installation.
    first_synced_at: datetime | None = fields.DateTimeField(null=True, blank=True)
    #: When the last list sweep was started; null: the next one is due, or under way.
    swept_at: datetime | None = fields.DateTimeField(_("swept at"), null=True, blank=True)
    #: The claim of the process that sweeps the lists, or does a full resync.
    sweep_claimed_until: datetime | None = fields.DateTimeField(null=True, blank=True, editable=False)
    sweep_claim_token: str = fields.ExactCharField(max_length=32, default="", blank=True, editable=False)
    #: When all objects must be compared, because events may be lost; null: no full resync is due.
    resync_due_at: datetime | None = fields.DateTimeField(_("full resync due at"), null=True, blank=True)
    #: The full resync in progress: its start, the list that it reads, and that list's last page.
    resync_begun_at: datetime | None = fields.DateTimeField(null=True, blank=True)
    resync_list: str = fields.CharField(max_length=64, default="", blank=True)
    resync_cursor: str = fields.ExactCharField(default="", blank=True)

    #: The latest reference at the provider that is the id of an operation which this ledger does not have, and when it
    #: was seen. Either a backup was restored, or another installation uses the account.
    unknown_operation: str = fields.ExactCharField(default="", blank=True, editable=False)
    unknown_operation_at: datetime | None = fields.DateTimeField(null=True, blank=True, editable=False)
    #: True if the first key that worked is a test key; null: none has yet. And the hash of the key that last read the
    #: events, or that was found to be of the same project (``conf.key_hash``).
    has_test_key: bool | None = fields.BooleanField(null=True, blank=True, editable=False)
    key_hash: str = fields.ExactCharField(max_length=64, default="", blank=True, editable=False)
    #: The hash of a key under which the provider knew none of the newest objects, and when it was asked for them.
    refused_key_hash: str = fields.ExactCharField(max_length=64, default="", blank=True, editable=False)
    refused_key_at: datetime | None = fields.DateTimeField(null=True, blank=True, editable=False)
    #: When attention was called because the key is of another project.
    key_replaced_at: datetime | None = fields.DateTimeField(null=True, blank=True, editable=False)
    #: When ``payments_forget`` began to delete the account's rows; null: it does not.
    forgetting_since: datetime | None = fields.DateTimeField(null=True, blank=True, editable=False)

    #: Payments whose rows were written before this (our clock) were searched for double payments.
    doubles_sought_at: datetime | None = fields.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("account state")
        verbose_name_plural = _("account states")

    def __str__(self) -> str:
        return str(self.account)


class RunKind(models.TextChoices):
    EVENTS = "events", _("events")
    OBJECTS = "objects", _("objects")
    FULL = "full", _("full resync")
    BALANCES = "balances", _("balances")


class RunState(models.TextChoices):
    #: Recorded at the start. Every end writes one of the others; after a crash of the process it stays.
    RUNNING = "running", _("running")
    #: The pass is complete, and nothing in it failed.
    DONE = "done", pgettext_lazy("reconciliation run", "done")
    #: It stopped at an error or at its deadline, or could not read something: see ``error``. The next pass resumes it.
    FAILED = "failed", pgettext_lazy("reconciliation run", "failed")
    #: Another pass had claimed the account, so this one did nothing.
    SKIPPED = "skipped", _("skipped: another pass is running")


class ReconciliationRun(Row):
    """The record of one pass: its window, what it saw, what was missing or different, and how it ended."""

    id: int
    account: str = fields.ExactCharField(_("account"), max_length=64)
    kind: str = fields.CharField(_("kind"), max_length=16, choices=RunKind)
    state: str = fields.CharField(_("state"), max_length=16, choices=RunState, default=RunState.RUNNING)
    started_at: datetime = fields.DateTimeField(_("started at"), default=timezone.now)
    finished_at: datetime | None = fields.DateTimeField(_("finished at"), null=True, blank=True)
    window_from: datetime | None = fields.DateTimeField(_("from"), null=True, blank=True)
    window_to: datetime | None = fields.DateTimeField(_("to"), null=True, blank=True)
    pages: int = fields.PositiveIntegerField(_("pages"), default=0)
    seen: int = fields.PositiveIntegerField(_("seen"), default=0)
    #: Events or objects that were missing here.
    recovered: int = fields.PositiveIntegerField(_("recovered"), default=0)
    #: Objects that differed in at least one field.
    drifted: int = fields.PositiveIntegerField(_("drifted"), default=0)
    repaired: int = fields.PositiveIntegerField(_("repaired"), default=0)
    #: Up to a hundred differences: object, field, ours, theirs (personal data masked).
    drift: list[dict[str, Any]] = fields.JSONField(_("drift"), default=list, blank=True)
    error: str = fields.OwnTextField(_("error"), default="", blank=True)
    get_kind_display: Callable[[], str]
    get_state_display: Callable[[], str]
    #: For the output during the pass, not stored: what it reads now, where an interrupted pass resumed, and how many
    #: objects were mirrored at the start.
    reads: str = ""
    resumed: str = ""
    expected: int = 0
    #: When the numbers were last saved, and when the pass must end, on the monotonic clock; None: without a limit.
    saved_at: float = 0.0
    deadline: float | None = None
    #: Called with the run after each page and while it waits, for a progress bar.
    on_progress: Callable[[ReconciliationRun], None] | None = None

    class Meta:
        verbose_name = _("reconciliation run")
        verbose_name_plural = _("reconciliation runs")
        indexes = [
            # The health report, and payments_process: the last passes of a kind.
            models.Index(fields=["account", "kind", "started_at"], name="pi_run_started"),
            # The admin list, and pruning.
            models.Index(fields=["started_at", "id"], name="pi_run_newest"),
        ]
        permissions = [("run_reconciliation", "Can start a reconciliation run")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.account} {moment(self.started_at)}"

    @property
    def duration(self) -> float | None:
        """Seconds; None while it runs."""
        return (self.finished_at - self.started_at).total_seconds() if self.finished_at else None


class DueAttention(Claimable):
    """A call of ``attention`` that is not sent yet. It is recorded with what it is about, and deleted when sent."""

    account: str = fields.ExactCharField(_("account"), max_length=64)
    reason: str = fields.CharField(_("reason"), max_length=64)
    message: str = fields.OwnTextField(_("message"))
    #: The name of a model of this app, and the key of its row; empty: no row.
    sender: str = fields.CharField(max_length=64)
    object_id: str = fields.ExactCharField(default="")

    class Meta:
        verbose_name = _("due attention")
        verbose_name_plural = _("due attentions")

    def __str__(self) -> str:
        return f"{self.reason} ({self.account})"


class DoublePayment(Row):
    """A reference that was paid for more than once in a currency. Deleted when the surplus has gone back."""

    account: str = fields.ExactCharField(_("account"), max_length=64)
    merchant_reference: str = fields.ExactCharField(_("merchant reference"))
    currency: str = fields.ExactCharField(_("currency"), max_length=64)
    found_at: datetime = fields.DateTimeField(_("found at"), default=timezone.now)

    class Meta:
        verbose_name = _("double payment")
        verbose_name_plural = _("double payments")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["account", "merchant_reference", "currency"], name="pi_double_payment")
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.merchant_reference}"


class RefreshReason(models.TextChoices):
    """Why the state of an object is not certain."""

    CHANGED_MEANWHILE = "changed_meanwhile", _("it changed while it was read")
    DRIFT = "drift", _("it differed from the provider")
    FULL_RESYNC = "full_resync", _("full resync")
    ORDER_UNCLEAR = "order_unclear", _("the order of its events is not clear")
    PAYOUT_CANCELED = "payout_canceled", _("its payout was canceled")
    REFUND_CHANGED = "refund_changed", _("a refund of it changed")
    REPEATED_POST = "repeated_post", _("an answer to a repeated request may be old")
    SILENT = "silent", _("no news for long")
    TIME_AHEAD = "time_ahead", _("an event with a time in the future")


class DueRefresh(Claimable, ObjectRef):
    """A request to read an object by GET, because its state is not certain. Deleted when done."""

    reason: str = fields.CharField(_("reason"), max_length=64)
    due_at: datetime = fields.DateTimeField(_("due at"), default=timezone.now)
    #: The object's handlers wait for this read until then, because the row may be older than an event of theirs.
    dispatch_waits_until: datetime | None = fields.DateTimeField(null=True, blank=True)
    #: Counts the requests. A GET answers only the requests that were made before it was sent.
    marks: int = fields.PositiveIntegerField(default=1)
    attempts: int = fields.PositiveIntegerField(_("attempts"), default=0)
    error: str = fields.OwnTextField(_("error"), default="", blank=True)

    class Meta:
        verbose_name = _("due refresh")
        verbose_name_plural = _("due refreshes")
        constraints = [
            models.UniqueConstraint(fields=["account", "object_kind", "object_id"], name="pi_refresh_object")
        ]
        indexes = [
            # the task that does the reads, and the admin list's order
            models.Index(fields=["due_at"], name="pi_refresh_due"),
            # the same task: the few reads for which handlers wait
            models.Index(fields=["dispatch_waits_until"], name="pi_refresh_awaited"),
        ]
