"""The migrations of the app and its optional apps are complete: ``makemigrations --check`` finds nothing to add."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core.management import call_command


@pytest.mark.django_db
def test_no_model_differs_from_its_migrations() -> None:
    labels = [app.label for app in apps.get_app_configs() if app.name.startswith("payments_integration")]
    assert "payments_notify" in labels
    call_command("makemigrations", *labels, check_changes=True, dry_run=True)
