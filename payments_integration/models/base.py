"""Choose the database that models are read from, and name the object that a row is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from functools import lru_cache, reduce
from itertools import chain
from operator import or_
from sys import intern
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from django.core.exceptions import MultipleObjectsReturned, ObjectDoesNotExist
from django.core.validators import EMPTY_VALUES
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

from payments_integration.db import fields
from payments_integration.db.transactions import locked
from payments_integration.exceptions import StaleRow

ModelT = TypeVar("ModelT", bound=models.Model)

#: An object of an account: (account, kind, id). A balance has its currency as id.
ObjectKey = tuple[str, str, str]


class PrimaryManager(models.Manager[ModelT], Generic[ModelT]):
    """Reads from the database that is written to.

    A replica that lags behind could lead to a second refund or an unknown event. For reports, ``using("replica")``
    still reads from a replica.
    """

    def get_queryset(self) -> models.QuerySet[ModelT]:
        rows = super().get_queryset()
        return rows if self._db else rows.using(router.db_for_write(self.model))

    if TYPE_CHECKING:
        # for type checkers without Django's types
        def __get__(self, instance: object, cls: type[Any] | None = None) -> Self: ...
        def get(self, *args: Any, **kwargs: Any) -> ModelT: ...


class Row(models.Model):
    """The base of all models of the app."""

    #: Fields that only grow. If the stored row has more than an instance, the instance is older.
    progress: ClassVar[tuple[str, ...]] = ()

    objects: ClassVar[PrimaryManager[Self]] = PrimaryManager()

    if TYPE_CHECKING:
        DoesNotExist: ClassVar[type[ObjectDoesNotExist]]
        MultipleObjectsReturned: ClassVar[type[MultipleObjectsReturned]]

    class Meta:
        abstract = True
        # ``refresh_from_db``, deferred fields and foreign keys read through this manager.
        base_manager_name = "objects"

    def save(self, **kwargs: Any) -> None:
        """Save as Django does. Raises StaleRow if the row was written since this instance was read.

        Saving the older values would set an object's status back, or make a sent request due again.
        """
        if self._state.adding or not self.progress:
            super().save(**kwargs)
            return
        with transaction.atomic(using=router.db_for_write(type(self), instance=self)):
            stored = locked(type(self)._base_manager.filter(pk=self.pk)).values(*self.progress).first() or {}
            if any(value is not None and _is_before(getattr(self, name), value) for name, value in stored.items()):
                raise StaleRow(
                    f"{type(self).__name__} {self.pk} was written since this instance was read, so it is not saved. "
                    "Read it again before you change it."
                )
            super().save(**kwargs)

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Check the fields as Django does, but let those be empty that may be empty in the database.

        A project may call ``full_clean`` for every row that any app saves, and ``blank`` is about forms. A refund may
        come before its payment.
        """
        skipped = {
            field.name
            for field in self._meta.concrete_fields
            if field.is_relation
            or ((field.null or field.has_default()) and getattr(self, field.attname) in EMPTY_VALUES)
        }
        super().clean_fields(exclude={*(exclude or ()), *skipped})


def _is_before(value: Any, stored: Any) -> bool:
    return value is None or bool(value < stored)


class Claimable(Row):
    """A row that one worker at a time works on (``db.claims``)."""

    #: When the worker's claim ends unless it releases the row earlier; null: no worker has the row.
    claimed_until: datetime | None = fields.DateTimeField(_("claimed until"), null=True, blank=True)
    #: The worker's claim; empty: no worker has the row.
    claim_token: str = fields.ExactCharField(max_length=32, default="", blank=True)

    class Meta:
        abstract = True


class OfObject(Row):
    """A row that names one object of one account, mirrored or not."""

    account: str
    object_kind: str
    object_id: str

    class Meta:
        abstract = True

    @property
    def object_key(self) -> ObjectKey:
        return (self.account, self.object_kind, self.object_id)


class ObjectRef(OfObject):
    """A row about one object of one account, with the three fields that name it."""

    account: str = fields.ExactCharField(_("account"), max_length=64)
    object_kind: str = fields.CharField(_("object"), max_length=64)
    object_id: str = fields.ExactCharField(_("object id"))

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.account} {self.object_id}"


#: How many objects of each account and kind a statement is about.
Shape = tuple[int, ...]


def shape_of(keys: Iterable[ObjectKey], prefix: str = "") -> tuple[Shape, dict[str, str]]:
    """Return the shape of these keys, and a map of the placeholders in ``keys_of(shape)`` to their texts."""
    ordered = sorted(keys)
    shape = tuple(Counter((account, kind) for account, kind, _ in ordered).values())
    return shape, dict(zip(chain.from_iterable(keys_of(shape, prefix)), chain.from_iterable(ordered), strict=True))


@lru_cache(maxsize=64)
def keys_of(shape: Shape, prefix: str = "") -> list[ObjectKey]:
    """Return placeholders for keys of this shape, for a query that is built once."""
    keys = []
    for group, count in enumerate(shape):
        account, kind = intern(f"\ufffd {prefix}account {group}"), intern(f"\ufffd {prefix}kind {group}")
        # One text for all shapes: almost each batch of a backlog has another shape, and hundreds of objects.
        keys += [(account, kind, intern(f"\ufffd {prefix}id {group}.{number}")) for number in range(count)]
    return keys


def of_objects(keys: Iterable[ObjectKey]) -> models.Q:
    """Match rows that name one of these objects."""
    groups: dict[tuple[str, str], list[str]] = {}
    for account, kind, object_id in sorted(keys):
        groups.setdefault((account, kind), []).append(object_id)
    return reduce(
        or_,
        (
            models.Q(account=account, object_kind=kind, object_id__in=object_ids)
            for (account, kind), object_ids in groups.items()
        ),
    )
