"""Configure the app: ``migrate`` drops the views before their tables change, and creates them again afterwards.

PostgreSQL refuses to change the type of a column that a view uses. SQLite refuses to replace a table that a view uses.
Migrations of this app could not create the views, because they would run before later changes of the tables.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.db import DatabaseError
from django.db.models.signals import post_migrate, pre_migrate

from payments_integration.runtime.logs import get_logger

logger = get_logger(__name__)


class ReportsConfig(AppConfig):
    name = "payments_integration.contrib.reports"
    label = "payments_reports"

    def ready(self) -> None:
        self.views = import_module("payments_integration.contrib.reports.sql_views")  # needs the models
        #: The rights on the views that this ``migrate`` dropped.
        self.rights: list[tuple[str, str]] = []
        core = apps.get_app_config("payments_integration")  # Django sends no signal for an app without models
        pre_migrate.connect(self.before_migrations, sender=core)
        post_migrate.connect(self.after_migrations, sender=core)

    def before_migrations(self, using: str, plan: Any, **_: Any) -> None:
        labels = {view.model._meta.app_label for view in self.views.VIEWS}
        if using == self.views.using() and any(step.app_label in labels for step, _ in plan):
            self.rights = self.views.drop(using)

    def after_migrations(self, using: str, plan: Any = None, **_: Any) -> None:
        if plan is None or using != self.views.using():  # ``flush`` has no plan
            return
        rights, self.rights = self.rights, []
        # ``migrate payments_integration`` leaves the tables of a newly installed optional app to the next ``migrate``.
        views = self.views.with_tables(using)
        if not views:  # ``migrate … zero``
            return
        try:
            # Keep views that are up to date, because replacing a view waits for its readers.
            if self.views.problems(using):
                self.views.create(using, views, rights)
        except DatabaseError as error:
            # This happens, for instance, after a migration back to an older version of the tables.
            logger.warning("The views for reports were not created: %s", error)
