"""Reconciliation: its state per account, the record of each pass, and what is due: objects to be read, attention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from payments_integration.dates import moment
from payments_integration.db import fields
from payments_integration.models.base import ObjectRef, Row


class AccountState(Row):
    """Per account: how far events are complete, the lease of the running pass, and the difference of our clocks."""

    account: str = fields.ExactCharField(_("account"), max_length=64, primary_key=True)
    #: All events created before this (the provider's clock) are in the inbox; null: no pass was complete yet.
    watermark: datetime | None = fields.DateTimeField(_("watermark"), null=True, blank=True)
    #: The present window and its last page, so that an interrupted pass resumes.
    window_from: datetime | None = fields.DateTimeField(_("from"), null=True, blank=True)
    window_to: datetime | None = fields.DateTimeField(_("to"), null=True, blank=True)
    cursor: str = fields.ExactCharField(default="", blank=True)
    lease_token: str = fields.CharField(max_length=32, default="", blank=True)
    lease_until: datetime | None = fields.DateTimeField(_("claimed until"), null=True, blank=True)
    #: The provider's clock minus ours in seconds; null: not measured yet.
    clock_offset: float | None = fields.FloatField(_("clock offset"), null=True, blank=True)
    #: The provider's clock at the first answer, or the ``t`` of the first valid signature. Stored once.
    first_contact_at: datetime | None = fields.DateTimeField(null=True, blank=True)
    #: When the first full resync was complete; null: what an answer brings may be from before the installation.
    first_synced_at: datetime | None = fields.DateTimeField(null=True, blank=True)
    #: When the last list sweep was started.
    swept_at: datetime | None = fields.DateTimeField(_("swept at"), null=True, blank=True)
    #: Events may be lost, so all objects must be compared from this time on. The pass that does it moves it ahead.
    resync_due_at: datetime | None = fields.DateTimeField(_("full resync due at"), null=True, blank=True)
    #: The full resync that is not complete: its start, the list that it reads, and that list's last page.
    resync_begun_at: datetime | None = fields.DateTimeField(null=True, blank=True)
    resync_list: str = fields.CharField(max_length=64, default="", blank=True)
    resync_cursor: str = fields.ExactCharField(default="", blank=True)

    #: The latest reference at the provider that is the id of an operation which this ledger does not have, and when it
    #: was seen: a backup was restored, or another installation uses the account.
    unknown_operation: str = fields.ExactCharField(default="", blank=True, editable=False)
    unknown_operation_at: datetime | None = fields.DateTimeField(null=True, blank=True, editable=False)

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
    ENDPOINTS = "endpoints", _("endpoints")


class RunState(models.TextChoices):
    RUNNING = "running", _("running")
    DONE = "done", pgettext_lazy("reconciliation run", "done")
    FAILED = "failed", pgettext_lazy("reconciliation run", "failed")
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
    error: str = fields.TextField(_("error"), default="", blank=True)
    get_kind_display: Callable[[], str]
    get_state_display: Callable[[], str]
    #: For the output while it runs, not stored: what it reads now, where an interrupted pass was resumed, and how many
    #: objects were mirrored at the start.
    reads: str = ""
    resumed: str = ""
    expected: int = 0
    #: When the numbers were last saved, on the monotonic clock.
    saved_at: float = 0.0

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


class DueAttention(Row):
    """A call of ``attention`` that is not sent yet. Recorded with what it is about, deleted when it is sent."""

    account: str = fields.ExactCharField(_("account"), max_length=64)
    reason: str = fields.CharField(_("reason"), max_length=64)
    message: str = fields.TextField(_("message"))
    #: The name of a model of this app, and the key of its row; empty: no row.
    sender: str = fields.CharField(max_length=64)
    object_id: str = fields.ExactCharField(default="")
    #: When another process may send it.
    due_at: datetime = fields.DateTimeField(_("due at"))

    class Meta:
        verbose_name = _("due attention")
        verbose_name_plural = _("due attentions")

    def __str__(self) -> str:
        return f"{self.reason} ({self.account})"


class RefreshReason(models.TextChoices):
    """Why the state of an object is not certain."""

    CHANGED_MEANWHILE = "changed_meanwhile", _("it changed while it was read")
    DRIFT = "drift", _("it differed from the provider")
    FULL_RESYNC = "full_resync", _("full resync")
    ORDER_UNCLEAR = "order_unclear", _("the order of its events is not clear")
    REFUND_CHANGED = "refund_changed", _("a refund of it changed")
    REPEATED_POST = "repeated_post", _("an answer to a repeated request may be old")
    SILENT = "silent", _("no news for long")
    TIME_AHEAD = "time_ahead", _("an event with a time in the future")


class DueRefresh(ObjectRef):
    """A request to read an object by GET, because its state is not certain. Deleted when done."""

    reason: str = fields.CharField(_("reason"), max_length=64)
    due_at: datetime = fields.DateTimeField(_("due at"), default=timezone.now)
    #: Until then, the object's handlers wait for this read, because the row may be older than an event of theirs.
    dispatch_waits_until: datetime | None = fields.DateTimeField(null=True, blank=True)
    #: Counts the requests: a GET answers only those that were made before it was sent.
    marks: int = fields.PositiveIntegerField(default=1)
    attempts: int = fields.PositiveIntegerField(_("attempts"), default=0)
    error: str = fields.TextField(_("error"), default="", blank=True)

    class Meta:
        verbose_name = _("due refresh")
        verbose_name_plural = _("due refreshes")
        constraints = [
            models.UniqueConstraint(fields=["account", "object_kind", "object_id"], name="pi_refresh_object")
        ]
        indexes = [
            # The task that works off refreshes, and the admin list's order.
            models.Index(fields=["due_at"], name="pi_refresh_due"),
            # The same task: the few for which handlers wait.
            models.Index(fields=["dispatch_waits_until"], name="pi_refresh_awaited"),
        ]
