"""The database between schedules: empty."""

from __future__ import annotations

from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection, transaction

from tests.factories.receivers.models import ReceiverCall

_TABLES = [
    *(
        model._meta.db_table
        for label in ("payments_integration", "payments_finance", "payments_receipts")
        for model in apps.get_app_config(label).get_models()
    ),
    ReceiverCall._meta.db_table,
    User._meta.db_table,
]


def empty() -> None:
    """Delete every row that the app, its receivers or its staff have written."""
    with transaction.atomic(), connection.cursor() as cursor:
        for table in _TABLES:
            cursor.execute(f"DELETE FROM {table}")
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_sequence")
