"""What all models share: which database they are read from, and how a row names an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from django.core.exceptions import MultipleObjectsReturned, ObjectDoesNotExist
from django.db import models, router
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields

ModelT = TypeVar("ModelT", bound=models.Model)

#: An object of an account: (account, kind, id). The id of a balance is its currency.
ObjectKey = tuple[str, str, str]


class PrimaryManager(models.Manager[ModelT], Generic[ModelT]):
    """Reads from the database that is written to.

    A replica that lags behind could lead to a second refund or an unknown event. ``using("replica")`` still reads
    from a replica, for reports.
    """

    def get_queryset(self) -> models.QuerySet[ModelT]:
        return super().get_queryset().using(router.db_for_write(self.model))

    if TYPE_CHECKING:
        # For type checkers that have no types of Django.
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
