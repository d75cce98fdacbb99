"""The database between schedules: empty."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Model

from payments_integration.models import (
    MIRRORS,
    DueRefresh,
    Event,
    ObjectDispatch,
    StatusChange,
    deletion_allowed,
)
from tests.factories.receivers.models import ReceiverCall

#: What the app, its receivers or its staff write.
MODELS: list[type[Model]] = [
    *(
        model
        for label in ("payments_integration", "payments_finance", "payments_receipts")
        for model in apps.get_app_config(label).get_models()
    ),
    ReceiverCall,
    User,
]


def empty() -> None:
    """Delete every row."""
    with transaction.atomic(), connection.cursor() as cursor:
        for model in MODELS:
            cursor.execute(f"DELETE FROM {model._meta.db_table}")
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_sequence")


def dump() -> dict[str, list[tuple[Any, ...]]]:
    """Every row as the database's driver returns it, by table. Instances of models would cost ten times as much."""
    rows = {}
    with connection.cursor() as cursor:
        for model in MODELS:
            cursor.execute(f"SELECT {_columns(model)} FROM {model._meta.db_table}")
            rows[model._meta.db_table] = cursor.fetchall()
    return rows


def load(rows: dict[str, list[tuple[Any, ...]]]) -> None:
    """Replace every row by those of the dump."""
    empty()
    with connection.constraint_checks_disabled(), transaction.atomic(), connection.cursor() as cursor:
        for model in MODELS:
            if values := rows[model._meta.db_table]:
                places = ", ".join(["%s"] * len(values[0]))
                insert = f"INSERT INTO {model._meta.db_table} ({_columns(model)}) VALUES ({places})"
                cursor.executemany(insert, values)


def _columns(model: type[Model]) -> str:
    return ", ".join(connection.ops.quote_name(field.column) for field in model._meta.local_concrete_fields)


def forget_object(kind: str, object_id: str) -> None:
    """Delete what is known of an object, and what receivers did with it, as a backup from before it was made."""
    with transaction.atomic(), deletion_allowed():
        for model in (StatusChange, DueRefresh, Event, ObjectDispatch):
            model._default_manager.filter(object_kind=kind, object_id=object_id).delete()
        ReceiverCall.objects.filter(object_id=object_id).delete()
        MIRRORS[kind]._default_manager.filter(pk=object_id).delete()
