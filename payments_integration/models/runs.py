"""Reconciliation: what each pass found, and what we know of an account besides its objects."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.fields import ProviderIdField
from payments_integration.models.base import Row


class AccountState(Row):
    """Per account: how far events are complete, who is reconciling, and how far our clocks are apart."""

    account = models.CharField(_("account"), max_length=64, primary_key=True)
    #: Every event created up to here (provider's clock) is in the inbox; null: no pass was ever complete.
    watermark = models.DateTimeField(_("watermark"), null=True, blank=True)
    #: The window being worked on and its last page, so that an interrupted pass resumes.
    window_from = models.DateTimeField(_("from"), null=True, blank=True)
    window_to = models.DateTimeField(_("to"), null=True, blank=True)
    cursor = ProviderIdField(default="", blank=True)
    lease_token = models.CharField(max_length=32, default="", blank=True)
    lease_until = models.DateTimeField(_("claimed until"), null=True, blank=True)
    #: Provider's clock minus ours, seconds; null: not measured yet.
    clock_offset = models.FloatField(_("clock offset"), null=True, blank=True)
    #: Where the running list sweep stands, and when the last one was complete.
    swept_at = models.DateTimeField(_("swept at"), null=True, blank=True)
    #: Events may be gone for good, so every object must be compared, from then on; who does it moves this ahead.
    resync_due_at = models.DateTimeField(_("full resync due at"), null=True, blank=True)

    class Meta:
        verbose_name = _("account state")
        verbose_name_plural = _("account states")

    def __str__(self) -> str:
        return self.account


class RunKind(models.TextChoices):
    EVENTS = "events", _("events")
    OBJECTS = "objects", _("objects")
    FULL = "full", _("full resync")
    BALANCES = "balances", _("balances")
    ENDPOINTS = "endpoints", _("endpoints")


class RunState(models.TextChoices):
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")
    SKIPPED = "skipped", _("skipped: another pass is running")


class ReconciliationRun(Row):
    """One pass: its window, what it saw, what was missing or different, and how it ended."""

    account = models.CharField(_("account"), max_length=64)
    kind = models.CharField(_("kind"), max_length=16, choices=RunKind)
    state = models.CharField(_("state"), max_length=16, choices=RunState, default=RunState.RUNNING)
    started_at = models.DateTimeField(_("started at"), default=timezone.now)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    window_from = models.DateTimeField(_("from"), null=True, blank=True)
    window_to = models.DateTimeField(_("to"), null=True, blank=True)
    pages = models.PositiveIntegerField(_("pages"), default=0)
    seen = models.PositiveIntegerField(_("seen"), default=0)
    #: Events or objects that we did not have.
    recovered = models.PositiveIntegerField(_("recovered"), default=0)
    #: Objects that differed in at least one field.
    drifted = models.PositiveIntegerField(_("drifted"), default=0)
    repaired = models.PositiveIntegerField(_("repaired"), default=0)
    #: Up to a hundred differences: object, field, ours, theirs (personal data masked).
    drift = models.JSONField(_("drift"), default=list, blank=True)
    error = models.TextField(_("error"), default="", blank=True)

    class Meta:
        verbose_name = _("reconciliation run")
        verbose_name_plural = _("reconciliation runs")
        indexes = [
            models.Index(fields=["account", "kind", "started_at"], name="pi_run_started"),
            models.Index(fields=["started_at", "id"], name="pi_run_newest"),
        ]
        permissions = [("run_reconciliation", "Can start a reconciliation run")]

    def __str__(self) -> str:
        return f"{self.kind} {self.account} {self.started_at:%Y-%m-%d %H:%M}"

    @property
    def duration(self) -> float | None:
        """Seconds; None while it runs."""
        return (self.finished_at - self.started_at).total_seconds() if self.finished_at else None
