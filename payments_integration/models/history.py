"""What happened: the inbox of events, changes of status and of balances, and where telling stands."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.fields import ProviderIdField
from payments_integration.models.base import Row
from payments_integration.models.mirrors import Balance


class EventState(models.TextChoices):
    """Where an event stands. Telling is over in DONE; a person may replay PARKED.

    A pass of reconciliation reads newest first: what it brings is HELD until a whole window is in, so that receivers
    are told in order.
    """

    PENDING = "pending", _("stored, not applied")
    HELD = "held", _("applied, told when its window is complete")
    APPLIED = "applied", _("applied, receivers not told")
    DONE = "done", _("done")
    PARKED = "parked", _("parked: a receiver keeps failing")
    QUARANTINED = "quarantined", _("quarantined")


class EventSource(models.TextChoices):
    WEBHOOK = "webhook", _("webhook")
    RECONCILIATION = "reconciliation", _("reconciliation")


class Event(Row):
    """One event of the provider, once, with its exact bytes (spec, "Events").

    A quarantined delivery is kept under an id of its own (``quarantine_<sha256 of the bytes>``), so that it never
    stands in the way of a good copy.
    """

    id = ProviderIdField(primary_key=True)
    account = models.CharField(_("account"), max_length=64)
    type = models.CharField(_("type"), max_length=255)
    #: The provider's clock; of a quarantined delivery our own.
    created_at = models.DateTimeField(_("created at"))
    #: ``data.object`` and ``data.id`` (of balances the currency); empty where there is none.
    object_kind = models.CharField(_("object"), max_length=64)
    object_id = ProviderIdField(_("object id"))
    received_at = models.DateTimeField(_("received at"), default=timezone.now)
    source = models.CharField(_("source"), max_length=16, choices=EventSource)
    #: The exact bytes; null after the retention or an erasure.
    body = models.BinaryField(_("body"), null=True)
    #: SHA-256 over the content (of a quarantined delivery: the bytes), kept when the body goes.
    content_hash = models.CharField(_("content hash"), max_length=64)
    state = models.CharField(_("state"), max_length=16, choices=EventState, default=EventState.PENDING)
    #: The mirrored status when this event was applied.
    previous_status = models.CharField(_("previous status"), max_length=64, default="", blank=True)
    told_at = models.DateTimeField(_("told at"), null=True, blank=True)
    #: Tries to apply it, then to tell it, that failed.
    attempts = models.PositiveIntegerField(_("failed attempts"), default=0)
    #: Why it is in quarantine or cannot be applied, or the traceback of the receiver that failed last.
    error = models.TextField(_("error"), default="", blank=True)

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes = [
            models.Index(fields=["state", "created_at", "id"], name="pi_event_state"),
            models.Index(fields=["account", "object_kind", "object_id", "created_at"], name="pi_event_object"),
            models.Index(fields=["created_at", "id"], name="pi_event_created"),
            models.Index(fields=["type", "created_at", "id"], name="pi_event_by_type"),
            models.Index(fields=["account", "created_at", "id"], name="pi_event_by_account"),
        ]
        permissions = [("replay_event", "Can replay an event")]

    @classmethod
    def arrived(
        cls,
        *,
        id: str,
        account: str,
        type: str,
        created_at: datetime,
        object_kind: str,
        object_id: str,
        source: str,
        body: bytes,
        content_hash: str,
        state: str = EventState.PENDING,
        error: str = "",
    ) -> Event:
        """An unsaved row, as the constructor makes it of names, for a third of the time: by position."""
        received_at, previous_status, told_at, attempts = timezone.now(), "", None, 0
        return cls(
            id, account, type, created_at, object_kind, object_id, received_at, source, body, content_hash,
            state, previous_status, told_at, attempts, error,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.type} {self.pk}"


class StatusChange(Row):
    """A mirrored status changed, old to new: one row per object and batch, or per answer.

    One that an event brought is told together with the event; one that an answer brought is told by itself.
    """

    account = models.CharField(_("account"), max_length=64)
    object_kind = models.CharField(_("object"), max_length=64)
    object_id = ProviderIdField(_("object id"))
    #: Empty: the object was not mirrored before.
    previous_status = models.CharField(_("previous status"), max_length=64, blank=True)
    status = models.CharField(_("status"), max_length=64)
    #: The provider's clock.
    at = models.DateTimeField(_("at"))
    event = models.ForeignKey(
        Event,
        verbose_name=_("event"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        blank=True,
        related_name="status_changes",
    )
    recorded_at = models.DateTimeField(_("recorded at"), default=timezone.now)
    #: Of a change that an answer brought: APPLIED (not told yet), DONE or PARKED. Else DONE: the event has it.
    state = models.CharField(_("state"), max_length=16, choices=EventState, default=EventState.DONE)
    told_at = models.DateTimeField(_("told at"), null=True, blank=True)
    attempts = models.PositiveIntegerField(_("failed attempts"), default=0)
    error = models.TextField(_("error"), default="", blank=True)

    class Meta:
        verbose_name = _("status change")
        verbose_name_plural = _("status changes")
        indexes = [
            models.Index(fields=["state", "at"], name="pi_change_state"),
            models.Index(fields=["at", "id"], name="pi_change_at"),
            models.Index(fields=["account", "object_kind", "object_id", "at"], name="pi_change_object"),
        ]

    def __str__(self) -> str:
        return f"{self.object_id}: {self.previous_status or 'new'} → {self.status}"


class BalanceChange(Row):
    """A balance as it was after a change: its history."""

    balance = models.ForeignKey(Balance, on_delete=models.CASCADE, related_name="changes", verbose_name=_("balance"))
    at = models.DateTimeField(_("at"))
    available = models.BigIntegerField(_("available"))
    pending = models.BigIntegerField(_("pending"))
    reserve = models.BigIntegerField(_("reserve"))
    hold = models.BigIntegerField(_("hold"))
    debt = models.BigIntegerField(_("debt"))

    class Meta:
        verbose_name = _("balance change")
        verbose_name_plural = _("balance changes")
        indexes = [models.Index(fields=["balance", "at"], name="pi_balancechange_at")]

    def __str__(self) -> str:
        return f"{self.balance_id} {self.at:%Y-%m-%d %H:%M:%S}"


class ObjectRef(Row):
    """A row that belongs to one object of one account, mirrored or not."""

    account = models.CharField(_("account"), max_length=64)
    object_kind = models.CharField(_("object"), max_length=64)
    object_id = ProviderIdField(_("object id"))

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.account} {self.object_kind} {self.object_id}"

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.account, self.object_kind, self.object_id)


class Telling(ObjectRef):
    """The lock under which an object's receivers are told, and when to try again after a failure.

    Apart from the mirror row, so that a slow receiver stalls no batch. Rows are made on demand and kept.
    """

    next_attempt_at = models.DateTimeField(_("next attempt at"), null=True)
    #: Somebody tells this object now; still set after ``next_attempt_at``: who did died over it.
    running = models.BooleanField(default=False)

    class Meta:
        verbose_name = _("telling")
        verbose_name_plural = _("tellings")
        constraints = [
            models.UniqueConstraint(fields=["account", "object_kind", "object_id"], name="pi_telling_object")
        ]
        indexes = [models.Index(fields=["next_attempt_at"], name="pi_telling_next")]


class DueRefresh(ObjectRef):
    """An object to be read by GET, because what came does not tell its state for sure. Deleted when done."""

    reason = models.CharField(_("reason"), max_length=64)
    due_at = models.DateTimeField(_("due at"), default=timezone.now)
    #: Grows each time the refresh is asked for: a GET settles only what was asked before it was sent.
    marks = models.PositiveIntegerField(default=1)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    error = models.TextField(_("error"), default="", blank=True)

    class Meta:
        verbose_name = _("due refresh")
        verbose_name_plural = _("due refreshes")
        constraints = [
            models.UniqueConstraint(fields=["account", "object_kind", "object_id"], name="pi_refresh_object")
        ]
        indexes = [models.Index(fields=["due_at"], name="pi_refresh_due")]
