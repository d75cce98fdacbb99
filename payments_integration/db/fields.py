"""Model field types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models
from django.db.models.expressions import Col
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor, ReverseManyToOneDescriptor
from django.db.models.lookups import Exact
from django.utils.functional import cached_property

from payments_integration.db import characters

_SetT = TypeVar("_SetT")
_GetT = TypeVar("_GetT")

if TYPE_CHECKING:
    # Generic, because the plugin of django-stubs takes a key such as ``refund.payment_id`` for a field of the class
    # below.
    class _CharField(models.CharField[_SetT, _GetT]): ...

    class _TextField(models.TextField[_SetT, _GetT]): ...
else:

    class _CharField:
        def __class_getitem__(cls, types: Any) -> type[models.CharField]:
            return models.CharField

    class _TextField:
        def __class_getitem__(cls, types: Any) -> type[models.TextField]:
            return models.TextField


class _ExactCharField(_CharField[_SetT, _GetT]):
    """Text that is compared byte for byte on every database: ids, references, account aliases.

    MariaDB and MySQL ignore case and trailing spaces unless the column has a binary collation without padding.
    PostgreSQL and SQLite compare exactly by default. On PostgreSQL the collation "C" makes one index serve equality,
    the order of bytes and prefixes. Otherwise Django would add a second index for prefixes to each key, and each
    INSERT would write to both.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 255)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        if kwargs.get("max_length") == 255:
            del kwargs["max_length"]
        return name, "payments_integration.db.fields.ExactCharField", args, kwargs

    def db_type(self, connection: Any) -> Any:
        if connection.vendor == "postgresql":
            # The same type by its full name: Django adds the second index if the name begins with "varchar".
            return f"character varying({self.max_length})"
        return super().db_type(connection)

    def db_parameters(self, connection: Any) -> Any:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
        elif connection.vendor == "postgresql":
            parameters["collation"] = "C"
        return parameters


class _SameAccountPrefetch:
    """Matches the rows of a prefetch by their account, too."""

    def get_prefetch_querysets(self, *args: Any, **kwargs: Any) -> Any:
        rows, of_row, of_instance, *rest = super().get_prefetch_querysets(*args, **kwargs)  # type: ignore[misc]
        return (
            rows,
            lambda row: (*of_row(row), row.account),
            lambda instance: (*of_instance(instance), instance.account),
            *rest,
        )


class _SameAccountRow(_SameAccountPrefetch, ForwardManyToOneDescriptor):  # type: ignore[type-arg]
    """``refund.payment``, if the payment is of the refund's account."""


class _SameAccountRows(ReverseManyToOneDescriptor):  # type: ignore[type-arg]
    """``payment.refunds`` of the payment's own account."""

    @cached_property
    def related_manager_cls(self) -> Any:
        class Manager(_SameAccountPrefetch, super().related_manager_cls):  # type: ignore[misc]
            def __init__(self, instance: Any) -> None:
                super().__init__(instance)
                self.core_filters["account"] = instance.account

        return Manager


class _SameAccountKey(models.ForeignKey):  # type: ignore[type-arg]
    """The id of an object of the row's own account.

    Another account's data may name an object of this one. So joins, accessors and prefetches compare the account too:
    a row of another account counts as absent. A condition on the id alone (``payment_id=``, ``payment__in=``) makes no
    join, so add a condition on the account.

    A ForeignObject of both columns would take ``payment__account=F("account")`` for a row compared with itself, let
    ``refund.payment = None`` empty the account, and have neither inlines nor widgets in an admin.
    """

    forward_related_accessor_class = _SameAccountRow
    related_accessor_class = _SameAccountRows

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        # The column is the same.
        return name, "django.db.models.ForeignKey", args, kwargs

    def get_extra_descriptor_filter(self, instance: Any) -> Any:
        return {"account": instance.account}

    def get_extra_restriction(self, alias: Any, related_alias: Any) -> Any:
        ours: Any = self.model._meta.get_field("account")
        theirs: Any = self.related_model._meta.get_field("account")
        return Exact(Col(alias, theirs), Col(related_alias, ours))


class _OwnTextField(_TextField[_SetT, _GetT]):
    """Text that the app writes itself, such as an error. The error that it quotes must not keep it from being stored.

    So a character that the database lacks is stored as ``\\U0001f600``.
    """

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        # The column is the same.
        return name, "django.db.models.TextField", args, kwargs

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        value = super().get_db_prep_value(value, connection, prepared)
        return characters.writable(value, connection.alias) if isinstance(value, str) else value


# The fields as the models use them: ``status: str = fields.CharField(…)``. Django has no types, and its stubs need a
# plugin of mypy. So the annotation tells every type checker what a row holds, and the field is Any.
BigIntegerField: Any = models.BigIntegerField
BinaryField: Any = models.BinaryField
BooleanField: Any = models.BooleanField
CharField: Any = models.CharField
DateField: Any = models.DateField
DateTimeField: Any = models.DateTimeField
ExactCharField: Any = _ExactCharField
FloatField: Any = models.FloatField
ForeignKey: Any = models.ForeignKey
JSONField: Any = models.JSONField
PositiveBigIntegerField: Any = models.PositiveBigIntegerField
PositiveIntegerField: Any = models.PositiveIntegerField
SameAccountKey: Any = _SameAccountKey
TextField: Any = models.TextField
OwnTextField: Any = _OwnTextField
