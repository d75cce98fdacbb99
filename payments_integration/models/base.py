"""Choose the database that models are read from, and name the object that a row is about."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from django.core.exceptions import MultipleObjectsReturned, ObjectDoesNotExist
from django.db import models, router
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields

ModelT = TypeVar("ModelT", bound=models.Model)

#: An object of an account: (account, kind, id). A balance has its currency as id.
ObjectKey = tuple[str, str, str]


class PrimaryManager(models.Manager[ModelT], Generic[ModelT]):
    """Reads from the database that is written to.

    A replica that lags behind could lead to a second refund or an unknown event. For reports, ``using("replica")``
    still reads from a replica.
    """

    def get_queryset(self) -> models.QuerySet[ModelT]:
        return super().get_queryset().using(router.db_for_write(self.model))

    if TYPE_CHECKING:
        # for type checkers without Django's types
        def __get__(self, instance: object, cls: type[Any] | None = None) -> Self: ...
        def get(self, *args: Any, **kwargs: Any) -> ModelT: ...


class Row(models.Model):
    """The base of all models of the app."""

    objects: ClassVar[PrimaryManager[Self]] = PrimaryManager()

    if TYPE_CHECKING:
        DoesNotExist: ClassVar[type[ObjectDoesNotExist]]
        MultipleObjectsReturned: ClassVar[type[MultipleObjectsReturned]]

    class Meta:
        abstract = True


class Claimable(Row):
    """A row that one worker at a time works on (``db.claims``)."""

    #: When the worker's claim ends unless it releases the row earlier; null: no worker has the row.
    claimed_until: datetime | None = fields.DateTimeField(_("claimed until"), null=True, blank=True)
    #: The worker's claim; empty: no worker has the row.
    claim_token: str = fields.ExactCharField(max_length=32, default="", blank=True)

    class Meta:
        abstract = True


class ObjectRef(Row):
    """A row about one object of one account, mirrored or not."""

    account: str = fields.ExactCharField(_("account"), max_length=64)
    object_kind: str = fields.CharField(_("object"), max_length=64)
    object_id: str = fields.ExactCharField(_("object id"))

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.account} {self.object_id}"

    @property
    def key(self) -> ObjectKey:
        return (self.account, self.object_kind, self.object_id)
