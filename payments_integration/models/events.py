"""The inbox of events, the changes of statuses and balances, and the state of dispatch per object."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.dates import moment
from payments_integration.db import fields
from payments_integration.db.indexes import PartialIndex
from payments_integration.models.base import ObjectRef, PrimaryManager, Row
from payments_integration.models.mirrors import Balance


class EventState(models.TextChoices):
    """The state of an event. DONE: dispatched, or nothing to dispatch. PARKED: a person may replay it.

    A reconciliation pass reads newest first: its events are HELD until a whole window is in, so that they are
    dispatched in order.
    """

    PENDING = "pending", _("stored, not applied")
    HELD = "held", _("applied, dispatched when its window is complete")
    APPLIED = "applied", _("applied, not dispatched")
    DONE = "done", _("done")
    PARKED = "parked", _("parked: a receiver keeps failing")
    QUARANTINED = "quarantined", _("quarantined")


class EventSource(models.TextChoices):
    WEBHOOK = "webhook", _("webhook")
    RECONCILIATION = "reconciliation", _("reconciliation")


class Event(Row):
    """One event of the provider, stored once, with its exact bytes (spec, "Events").

    A quarantined delivery has the id ``quarantine_<sha256 of the bytes>``, so that it never blocks a valid copy.
    """

    id: str = fields.ExactCharField(primary_key=True)
    account: str = fields.ExactCharField(_("account"), max_length=64)
    type: str = fields.CharField(_("type"), max_length=255)
    #: The provider's clock; for a quarantined delivery ours.
    created_at: datetime = fields.DateTimeField(_("created at"))
    #: ``data.object`` and ``data.id`` (for balances the currency); empty in quarantine.
    object_kind: str = fields.CharField(_("object"), max_length=64)
    object_id: str = fields.ExactCharField(_("object id"))
    received_at: datetime = fields.DateTimeField(_("received at"), default=timezone.now)
    source: str = fields.CharField(_("source"), max_length=16, choices=EventSource)
    #: The exact bytes; null after the retention or an erasure.
    body: bytes | None = fields.BinaryField(_("body"), null=True)
    #: SHA-256 of the content (in quarantine: of the bytes), kept when the body is deleted.
    content_hash: str = fields.CharField(_("content hash"), max_length=64)
    state: str = fields.CharField(_("state"), max_length=16, choices=EventState, default=EventState.PENDING)
    #: The mirrored status before this event was applied.
    previous_status: str = fields.CharField(_("previous status"), max_length=64, default="", blank=True)
    dispatched_at: datetime | None = fields.DateTimeField(_("dispatched at"), null=True, blank=True)
    #: Failed attempts to apply it, then to dispatch it.
    attempts: int = fields.PositiveIntegerField(_("failed attempts"), default=0)
    #: Why it is quarantined or cannot be applied, or the traceback of the last receiver that failed.
    error: str = fields.TextField(_("error"), default="", blank=True)
    #: The trace in which it was received (W3C Trace Context), if tracing was active: its handlers continue it.
    traceparent: str = fields.CharField(_("trace"), max_length=55, default="", blank=True)
    status_changes: PrimaryManager[StatusChange]
    get_source_display: Callable[[], str]
    get_state_display: Callable[[], str]

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes: ClassVar[list[models.Index]] = [
            # Processing, dispatch and pruning; the admin's filter by state.
            models.Index(fields=["state", "created_at", "id"], name="pi_event_state"),
            # Dispatch, by state; answers (snapshot), sweeps, erasure; the history on an object's page.
            models.Index(
                fields=["account", "object_kind", "object_id", "state", "created_at"], name="pi_event_object"
            ),
            # The lists of admin and API, and each of their filters in that order. By account: the health report too,
            # and the newest events of an object with many, such as a balance.
            models.Index(fields=["created_at", "id"], name="pi_event_created"),
            models.Index(fields=["type", "created_at", "id"], name="pi_event_by_type"),
            models.Index(fields=["account", "created_at", "id"], name="pi_event_by_account"),
            # Pruning: the bodies that are left, without the many events that have none any more.
            PartialIndex(
                fields=["received_at", "id"],
                name="pi_event_body",
                only=models.Q(state=EventState.DONE, body__isnull=False),
            ),
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
        traceparent: str = "",
    ) -> Event:
        """An unsaved row. Arguments by position take the constructor a third of the time."""
        received_at, previous_status, dispatched_at, attempts = timezone.now(), "", None, 0
        return cls(
            id, account, type, created_at, object_kind, object_id, received_at, source, body, content_hash,
            state, previous_status, dispatched_at, attempts, error, traceparent,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.type} {self.pk}"


class StatusChange(Row):
    """A change of a mirrored status, old to new: one row per object and batch, or per answer.

    A change that an event brought is dispatched with the event; one that an answer brought is dispatched alone.
    """

    id: int
    account: str = fields.ExactCharField(_("account"), max_length=64)
    object_kind: str = fields.CharField(_("object"), max_length=64)
    object_id: str = fields.ExactCharField(_("object id"))
    #: Empty: the object is new to the mirror.
    previous_status: str = fields.CharField(_("previous status"), max_length=64, blank=True)
    status: str = fields.CharField(_("status"), max_length=64)
    #: The provider's clock.
    at: datetime = fields.DateTimeField(_("at"))
    event: Event | None = fields.ForeignKey(
        Event,
        verbose_name=_("event"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        blank=True,
        related_name="status_changes",
    )
    event_id: str | None
    recorded_at: datetime = fields.DateTimeField(_("recorded at"), default=timezone.now)
    #: For a change that an answer brought: APPLIED (not dispatched yet), DONE or PARKED. Otherwise DONE.
    state: str = fields.CharField(_("state"), max_length=16, choices=EventState, default=EventState.DONE)
    dispatched_at: datetime | None = fields.DateTimeField(_("dispatched at"), null=True, blank=True)
    attempts: int = fields.PositiveIntegerField(_("failed attempts"), default=0)
    error: str = fields.TextField(_("error"), default="", blank=True)
    get_state_display: Callable[[], str]

    class Meta:
        verbose_name = _("status change")
        verbose_name_plural = _("status changes")
        indexes = [
            # Dispatch; the admin's filter by state.
            models.Index(fields=["state", "at"], name="pi_change_state"),
            # The admin list.
            models.Index(fields=["at", "id"], name="pi_change_at"),
            # Dispatch, answers, erasure; the history on an object's page, and the admin's search.
            models.Index(fields=["account", "object_kind", "object_id", "at"], name="pi_change_object"),
        ]

    def __str__(self) -> str:
        return f"{self.object_id} {moment(self.at)}"


class BalanceChange(Row):
    """The amounts of a balance after a change."""

    balance: Balance = fields.ForeignKey(
        # The index below begins with this column.
        Balance,
        on_delete=models.CASCADE,
        related_name="changes",
        verbose_name=_("balance"),
        db_index=False,
    )
    balance_id: int
    at: datetime = fields.DateTimeField(_("at"))
    available: int = fields.BigIntegerField(_("available"))
    pending: int = fields.BigIntegerField(_("pending"))
    reserve: int = fields.BigIntegerField(_("reserve"))
    hold: int = fields.BigIntegerField(_("hold"))
    debt: int = fields.BigIntegerField(_("debt"))

    class Meta:
        verbose_name = _("balance change")
        verbose_name_plural = _("balance changes")
        # The history on a balance's page.
        indexes = [models.Index(fields=["balance", "at"], name="pi_balancechange_at")]

    def __str__(self) -> str:
        return f"{self.balance_id} {moment(self.at)}"


class ObjectDispatch(ObjectRef):
    """The lock under which an object's items are dispatched, and the time of the next attempt after a failure.

    It is not the mirror row, so that a slow receiver does not block a batch. Rows are inserted on demand and kept.
    """

    #: When a failed item is retried, or a claim ends.
    next_attempt_at: datetime | None = fields.DateTimeField(_("next attempt at"), null=True)
    #: The claim that a worker has on this object and others of its page; empty: no worker has claimed it.
    claim: str = fields.ExactCharField(max_length=32, default="", db_index=True)
    #: A worker dispatches the objects of its claim in this order, and releases each when it is done with it.
    turn: int = fields.PositiveIntegerField(default=0)
    #: The item that the worker dispatches next, while the object is claimed: an event, or a status change without one.
    event_in_hand: str = fields.ExactCharField(default="")
    change_in_hand: int = fields.BigIntegerField(default=0)

    class Meta:
        verbose_name = _("object dispatch")
        verbose_name_plural = _("object dispatches")
        constraints = [
            models.UniqueConstraint(fields=["account", "object_kind", "object_id"], name="pi_dispatch_object")
        ]
