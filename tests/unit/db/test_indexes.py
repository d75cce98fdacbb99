"""An index that some databases do without."""

from __future__ import annotations

from unittest import mock

import pytest
from django.db import connection, models

from payments_integration.db.indexes import PartialIndex, has_partial_indexes
from payments_integration.models import Event

INDEX = PartialIndex(fields=["received_at"], name="pi_test", only=models.Q(body__isnull=False))


@pytest.mark.django_db
def test_a_partial_index_exists_where_the_database_has_such() -> None:
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, Event._meta.db_table)
    assert ("pi_event_body" in found) == has_partial_indexes("default") == (connection.vendor != "mysql")


@pytest.mark.django_db
def test_it_is_made_over_its_rows_only() -> None:
    editor = connection.SchemaEditorClass(connection, collect_sql=True)
    editor.deferred_sql = []  # what entering it would do, and more that a test's transaction does not allow
    assert "WHERE" in str(INDEX.create_sql(Event, editor)) or connection.vendor == "mysql"
    with mock.patch.object(type(connection.features), "supports_partial_indexes", new=False):
        assert INDEX.create_sql(Event, editor) == INDEX.remove_sql(Event, editor) == "DO 0"
    with mock.patch.object(type(connection.features), "supports_partial_indexes", new=True):
        assert "pi_test" in str(INDEX.remove_sql(Event, editor))


def test_a_migration_restores_it_as_it_was() -> None:
    path, args, kwargs = INDEX.deconstruct()
    assert path == "payments_integration.db.indexes.PartialIndex"
    assert PartialIndex(*args, **kwargs) == INDEX
    assert PartialIndex(*args, **{**kwargs, "only": models.Q(body=None)}) != INDEX
