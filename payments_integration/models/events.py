"""The inbox of events, the changes of statuses, and the state of dispatch per object."""

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
from payments_integration.models.base import Claimable, ObjectRef, OfObject, PrimaryManager


class EventState(models.TextChoices):
    """The state of an event, or of a status change that an answer brought."""

    #: Stored, not applied. Every event that could be parsed starts here. ``process`` applies it in a batch: it becomes
    #: APPLIED, HELD or DONE, or QUARANTINED if it cannot be applied. With ``attempts``, it triggered a bug of ours and
    #: is retried alone until an upgrade applies it.
    PENDING = "pending", _("stored, not applied")
    #: Applied; a reconciliation pass brought it. A pass reads newest first, so its events wait until their window is
    #: complete, to be dispatched in order. ``release`` makes them APPLIED; so does ``release_overdue`` if the pass
    #: keeps failing.
    HELD = "held", _("applied, dispatched when its window is complete")
    #: Applied, and a receiver wants it. It waits for its turn in the order of its object, or for its next attempt.
    #: ``dispatch`` makes it DONE in the transaction of its receivers, or PARKED after the last failed attempt.
    APPLIED = "applied", _("applied, not dispatched")
    #: Dispatched. Or not to be dispatched, without ``dispatched_at``: it is history, or no receiver wants it. Final,
    #: unless a person replays it or ``dispatch_history`` finds a receiver: then it is APPLIED again, and
    #: ``dispatched_at`` stays.
    DONE = "done", _("done")
    #: Its receivers failed in every attempt, and ``attention`` was called. Later items of the object go on. A person
    #: mends the receiver and replays it: it is APPLIED again.
    PARKED = "parked", _("parked: a receiver keeps failing")
    #: Signed, but not understood, in contradiction to a stored event, or refused by the database; ``attention`` was
    #: called. A person replays it, for example after an upgrade: a valid copy is stored as PENDING and replaces the
    #: row.
    QUARANTINED = "quarantined", _("quarantined")


class EventSource(models.TextChoices):
    WEBHOOK = "webhook", _("webhook")
    RECONCILIATION = "reconciliation", _("reconciliation")


class Event(OfObject):
    """One event of the provider, stored once, with its exact bytes (spec, "Events").

    A quarantined delivery has the id ``quarantine_<sha256 of the bytes>``, so that it never blocks a valid copy.
    """

    progress: ClassVar[tuple[str, ...]] = ("dispatched_at",)

    id: str = fields.ExactCharField(primary_key=True)
    account: str = fields.ExactCharField(_("account"), max_length=64)
    type: str = fields.CharField(_("type"), max_length=255)
    #: The provider's clock; ours for a quarantined delivery.
    created_at: datetime = fields.DateTimeField(_("created at"))
    #: ``data.object`` and ``data.id`` (for balances the currency); empty in quarantine.
    object_kind: str = fields.CharField(_("object"), max_length=64)
    object_id: str = fields.ExactCharField(_("object id"))
    received_at: datetime = fields.DateTimeField(_("received at"), default=timezone.now)
    source: str = fields.CharField(_("source"), max_length=16, choices=EventSource)
    #: The exact bytes; null when the retention is over, or after an erasure.
    body: bytes | None = fields.BinaryField(_("body"), null=True)
    #: SHA-256 of the content (in quarantine: of the bytes). Kept when the body is deleted.
    content_hash: str = fields.CharField(_("content hash"), max_length=64)
    state: str = fields.CharField(_("state"), max_length=16, choices=EventState, default=EventState.PENDING)
    #: The mirrored status before this event was applied.
    previous_status: str = fields.CharField(_("previous status"), max_length=64, default="", blank=True)
    dispatched_at: datetime | None = fields.DateTimeField(_("dispatched at"), null=True, blank=True)
    #: Failed attempts to apply it, and later to dispatch it.
    attempts: int = fields.PositiveIntegerField(_("failed attempts"), default=0)
    #: Why it is quarantined or cannot be applied, or the traceback of the last receiver that failed.
    error: str = fields.OwnTextField(_("error"), default="", blank=True)
    #: The trace in which it was received (W3C Trace Context), if tracing was active. Its handlers continue that trace.
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
            # Dispatch, by state; answers (snapshot), sweeps and erasure; the history on an object's page.
            models.Index(
                fields=["account", "object_kind", "object_id", "state", "created_at"], name="pi_event_object"
            ),
            # The lists of admin and API, with each filter in that order. By account also the health report, and the
            # newest events of an object with many, such as a balance.
            models.Index(fields=["created_at", "id"], name="pi_event_created"),
            models.Index(fields=["type", "created_at", "id"], name="pi_event_by_type"),
            models.Index(fields=["account", "created_at", "id"], name="pi_event_by_account"),
            # Pruning: only the bodies that are left. Many events no longer have one.
            PartialIndex(
                fields=["received_at", "id"],
                name="pi_event_body",
                only=models.Q(state=EventState.DONE, body__isnull=False),
            ),
        ]
        permissions = [("replay_event", "Can replay an event")]

    def __str__(self) -> str:
        return f"{self.type} {self.pk}"


class StatusChange(ObjectRef):
    """A change of a mirrored status: one row per object and batch, or per answer.

    A change that an event brought is dispatched with the event. A change that an answer brought is dispatched alone.
    """

    progress: ClassVar[tuple[str, ...]] = ("dispatched_at",)

    id: int
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
    #: APPLIED, DONE or PARKED if an answer brought the change; DONE if an event did.
    state: str = fields.CharField(_("state"), max_length=16, choices=EventState, default=EventState.DONE)
    dispatched_at: datetime | None = fields.DateTimeField(_("dispatched at"), null=True, blank=True)
    attempts: int = fields.PositiveIntegerField(_("failed attempts"), default=0)
    error: str = fields.OwnTextField(_("error"), default="", blank=True)
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


class Grouping(models.TextChoices):
    """How a worker that has claimed an object dispatches its items."""

    #: Each item in its own transaction. If the worker dies, the item in hand counts a failure.
    SINGLE = ""
    #: Together with items of other objects. If the worker dies, no item counts a failure, and the objects of the claim
    #: become ALONE.
    GROUPED = "grouped"
    #: One by one, because a worker died over a group. SINGLE again when no item is left.
    ALONE = "alone"


class ObjectDispatch(Claimable, ObjectRef):
    """The lock under which an object's items are dispatched, and the time of the next attempt after a failure.

    The mirror row is not the lock, so a slow receiver does not block a batch. Rows are inserted on demand and kept.
    """

    #: When a failed item is retried.
    next_attempt_at: datetime | None = fields.DateTimeField(_("next attempt at"), null=True)
    #: The order in which the worker dispatches the objects of its claim. It releases each when its turn is over.
    turn: int = fields.PositiveIntegerField(default=0)
    #: The item that the worker of a claimed object dispatches next: an event, or a status change without one.
    event_in_hand: str = fields.ExactCharField(default="")
    change_in_hand: int = fields.BigIntegerField(default=0)
    grouping: str = fields.CharField(max_length=16, default=Grouping.SINGLE, blank=True)

    class Meta:
        verbose_name = _("object dispatch")
        verbose_name_plural = _("object dispatches")
        constraints = [
            models.UniqueConstraint(fields=["account", "object_kind", "object_id"], name="pi_dispatch_object")
        ]
        # The objects of a page.
        indexes = [models.Index(fields=["claim_token"], name="pi_dispatch_claim")]
