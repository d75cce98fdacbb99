"""Store the notices to send, and when the next message of each channel and reason may leave."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils import timezone

from payments_integration.db import fields
from payments_integration.models.base import Row


class Channel(models.TextChoices):
    MAIL = "mail"
    CHAT = "chat"


class Notice(Row):
    """One call of ``attention`` for one channel. The row is deleted when it is sent."""

    channel: str = fields.CharField(max_length=8, choices=Channel)
    reason: str = fields.CharField(max_length=64)
    account: str = fields.ExactCharField(max_length=64)
    message: str = fields.OwnTextField()
    #: The path of the row's page in the admin; empty if there is none.
    path: str = fields.TextField(default="")
    created_at: datetime = fields.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.reason} ({self.account})"


class Turn(Row):
    """The time at which the next message of a channel about a reason may leave."""

    channel: str = fields.CharField(max_length=8, choices=Channel)
    reason: str = fields.CharField(max_length=64)
    next_at: datetime = fields.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["channel", "reason"], name="pi_notify_turn")]

    def __str__(self) -> str:
        return f"{self.channel} {self.reason}"
