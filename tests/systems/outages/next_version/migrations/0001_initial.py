"""As a minor version may: a column that the database fills, and an index without a lock."""

from __future__ import annotations

from django.db import migrations

TABLE = "payments_integration_event"


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("payments_integration", "0001_initial")]
    operations = [
        migrations.RunSQL(f"ALTER TABLE {TABLE} ADD COLUMN stored_by text NOT NULL DEFAULT 'old'"),
        migrations.RunSQL(f"CREATE INDEX CONCURRENTLY next_version_stored_by ON {TABLE} (stored_by)"),
    ]
