"""Model field types, and the characters that the database can store.

It cannot store all if it was created as utf8mb3, latin1 or LATIN1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.db import connections, models
from django.db.models.expressions import Col
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor, ReverseManyToOneDescriptor
from django.db.models.lookups import Exact
from django.utils.functional import cached_property

#: Character sets that store every text.
COMPLETE_CHARACTER_SETS = frozenset({"utf8mb4", "UTF8", "SQL_ASCII"})
#: Python's name of a character set, if it is different.
_CODECS = {"latin1": "cp1252"}
#: Characters from here on take four bytes.
_BEYOND_UTF8MB3 = "\U00010000"

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
        return writable(value, connection.alias) if isinstance(value, str) else value


class _BytesField(models.BinaryField):  # type: ignore[type-arg]
    """Bytes from every driver. psycopg2 returns a memoryview, which has no ``decode`` and cannot be pickled."""

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        # The column is the same.
        return name, "django.db.models.BinaryField", args, kwargs

    def get_internal_type(self) -> str:
        return "BinaryField"

    def get_db_converters(self, connection: Any) -> Any:
        return [_as_bytes] if connection.Database.__name__ == "psycopg2" else []


def _as_bytes(value: Any, *_: Any) -> bytes | None:
    return None if value is None else bytes(value)


# The fields as the models use them: ``status: str = fields.CharField(…)``. Django has no types, and its stubs need a
# plugin of mypy. So the annotation tells every type checker what a row holds, and the field is Any.
BigIntegerField: Any = models.BigIntegerField
BinaryField: Any = _BytesField
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


def writable(text: str, using: str) -> str:
    """Write each character of our own text that the database lacks as ``\\U0001f600``."""
    if text.isascii():
        return text
    # No database has half of a surrogate pair, which stands for a byte of a file name that is not UTF-8.
    text = text.encode(errors="backslashreplace").decode()
    if (name := character_set(using)) in COMPLETE_CHARACTER_SETS:
        return text
    return "".join(char if _has(name, char) else ascii(char)[1:-1] for char in text)


def lacking(values: Mapping[str, Any], using: str) -> dict[str, str]:
    """Map each value's name to its first character that the database cannot store.

    MariaDB's JSON stores every character, so only texts count there. No statement for ASCII.
    """
    is_deep = connections[using].vendor == "postgresql"
    found: dict[str, str] = {}
    for key, value in values.items():
        for text in _texts(value, is_deep):
            if not text.isascii() and (name := character_set(using)) not in COMPLETE_CHARACTER_SETS:
                for char in text:
                    if not _has(name, char):
                        found.setdefault(key, char)
    return found


def character_set(using: str) -> str:
    """Return the database's name for the character set of the app's texts."""
    return _character_set(using, str(connections[using].settings_dict["NAME"]))


@lru_cache(maxsize=32)
def _character_set(using: str, database: str) -> str:
    connection: Any = connections[using]
    if connection.vendor == "sqlite":
        return "UTF8"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SHOW server_encoding")
        else:
            # Other columns of the app, such as ids, name their character set themselves.
            cursor.execute(
                "SELECT character_set_name FROM information_schema.columns"
                " WHERE table_schema = DATABASE() AND table_name = %s AND column_name = 'error'",
                [apps.get_model("payments_integration", "Event")._meta.db_table],
            )
        found = cursor.fetchone()
        if found is None:  # before the first migration
            cursor.execute("SELECT @@character_set_database")
            found = cursor.fetchone()
    return str(found[0])


def connection_character_set(using: str) -> str:
    """Return the name of the character set in which texts are sent. PostgreSQL's driver sends all."""
    if connections[using].vendor != "mysql":
        return "UTF8"
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT @@character_set_client")
        return str(cursor.fetchone()[0])


def _has(name: str, char: str) -> bool:
    if name in ("utf8mb3", "utf8"):
        return char < _BEYOND_UTF8MB3
    try:
        char.encode(_CODECS.get(name, name))
    except (UnicodeEncodeError, LookupError):
        return char.isascii()
    return True


def _texts(value: Any, is_deep: bool) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_deep and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key, is_deep)
            yield from _texts(item, is_deep)
    elif is_deep and isinstance(value, list):
        for item in value:
            yield from _texts(item, is_deep)
