from __future__ import annotations

from typing import ClassVar

from django.db import models


class Handled(models.Model):
    """The row that a handler updates. It has the id of a payment, or that of an event."""

    id = models.TextField(primary_key=True)
    calls = models.IntegerField(default=0, db_default=0)
    called_at = models.DateTimeField(null=True)
    objects: ClassVar[models.Manager[Handled]] = models.Manager()

    class Meta:
        app_label = "merchant"  # also where the app is not installed

    def __str__(self) -> str:
        return self.id


class Call(models.Model):
    """One call of a handler. The primary keys of an object's calls show their order."""

    event_id = models.TextField(unique=True)
    object_id = models.TextField()
    #: Of the event.
    created_at = models.DateTimeField()
    objects: ClassVar[models.Manager[Call]] = models.Manager()

    class Meta:
        app_label = "merchant"

    def __str__(self) -> str:
        return self.event_id
