from __future__ import annotations

from django.apps import AppConfig
from django.db import models


class NextVersionConfig(AppConfig):
    name = "tests.systems.outages.next_version"

    def ready(self) -> None:
        from payments_integration.models import Event

        Event.add_to_class("stored_by", models.TextField(default="new", db_default="old"))
