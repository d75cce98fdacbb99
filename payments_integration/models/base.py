"""Where the app's rows are read."""

from __future__ import annotations

from typing import ClassVar, Self, TypeVar

from django.db import models, router

ModelT = TypeVar("ModelT", bound=models.Model)


class PrimaryManager(models.Manager[ModelT]):
    """Reads from the database that is written to.

    Flows decide on what they read: a replica that lags behind would have them refund twice or find an event unknown.
    ``using("replica")`` still reads elsewhere, for reports.
    """

    def get_queryset(self) -> models.QuerySet[ModelT]:
        return super().get_queryset().using(router.db_for_write(self.model))


class Row(models.Model):
    """What every model of the app is."""

    objects: ClassVar[PrimaryManager[Self]] = PrimaryManager()

    class Meta:
        abstract = True
