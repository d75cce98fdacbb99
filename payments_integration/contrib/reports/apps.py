"""The app's configuration: ``migrate`` drops the views before the tables below them change, and creates them again.

PostgreSQL refuses to change the type of a column that a view uses, and SQLite to replace a table below one. Migrations
of this app could not create the views: they would run before later changes of the tables.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.db import DatabaseError
from django.db.models.signals import post_migrate, pre_migrate

logger = logging.getLogger(__name__)


class ReportsConfig(AppConfig):
    name = "payments_integration.contrib.reports"
    label = "payments_reports"

    def ready(self) -> None:
        self.views = import_module("payments_integration.contrib.reports.sql_views")  # it needs the models
        #: What gives the views of this ``migrate`` their rights again.
        self.rights: list[str] = []
        core = apps.get_app_config("payments_integration")  # Django sends none for an app without models
        pre_migrate.connect(self.before_migrations, sender=core)
        post_migrate.connect(self.after_migrations, sender=core)

    def before_migrations(self, sender: AppConfig, using: str, plan: Any, **_: Any) -> None:
        if using == self.views.using() and any(step.app_label == sender.label for step, _ in plan):
            self.rights = self.views.drop(using)

    def after_migrations(self, using: str, plan: Any = None, **_: Any) -> None:
        if plan is None or using != self.views.using():  # ``flush`` has no plan
            return
        rights, self.rights = self.rights, []
        if not self.views.has_tables(using):  # ``migrate … zero``: SQLite would create views that no table is below
            return
        try:
            # Views that are as they should be stay: replacing one waits for its readers.
            if self.views.problems(using):
                self.views.create(using, rights)
        except DatabaseError as error:
            # For instance, the migrations went back to an older version of the tables.
            logger.warning("The views for reports were not created: %s", error)
