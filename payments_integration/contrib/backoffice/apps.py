"""Configure the app: connect the search index and the notes to the mirror, and check what the app needs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

from django.apps import AppConfig, apps
from django.core import checks
from django.db import router
from django.utils.translation import gettext_lazy as _

from payments_integration import signals

LABEL = "payments_backoffice"


class BackOfficeConfig(AppConfig):
    name = "payments_integration.contrib.backoffice"
    label = LABEL
    verbose_name = _("Back office of payments")
    default_auto_field = "django.db.models.BigAutoField"
    payments_groups: ClassVar[dict[str, tuple[str, ...]]] = {
        "Payments: viewer": ("view_note",),
        "Payments: support": ("view_note", "add_note", "handle_todo"),
        "Payments: finance": ("view_note", "add_note", "handle_todo"),
        "Payments: approver": ("view_note", "add_note", "handle_todo"),
        "Payments: operations": ("view_note", "handle_todo"),
    }

    def ready(self) -> None:
        # Import these here, because they need the models.
        erasure = import_module("payments_integration.erasure")
        erasing = import_module("payments_integration.contrib.backoffice.erasing")
        erasure.register(erasing.NotesEraser())
        erasure.register(erasing.TodoEraser())
        signals.on_mirror_written(write_terms)
        signals.on_mirror_deleted(delete_terms)
        signals.pass_ended.connect(report_unpaid, dispatch_uid=LABEL)
        checks.register(check_finance, checks.Tags.compatibility)
        checks.register(check_database, checks.Tags.models)


def write_terms(rows: Sequence[Any]) -> None:
    """Update the search terms of the rows of a transaction. The first call loads the module."""
    import_module("payments_integration.contrib.backoffice.index").write(rows)


def delete_terms(rows: Sequence[Any]) -> None:
    """Delete the search terms of rows that are deleted."""
    import_module("payments_integration.contrib.backoffice.index").delete(rows)


def report_unpaid(**_: Any) -> None:
    """Call attention to paid orders that are not marked as paid. Connected to ``pass_ended``."""
    import_module("payments_integration.contrib.backoffice.handling").report_unpaid()


def check_finance(**_: Any) -> list[checks.CheckMessage]:
    if apps.is_installed("payments_integration.contrib.finance"):
        return []
    return [
        checks.Error(
            "The back office needs the app for bookkeeping.",
            hint='Add "payments_integration.contrib.finance" to INSTALLED_APPS, before the back office.',
            id="payments_integration.E060",
        )
    ]


def check_database(**_: Any) -> list[checks.CheckMessage]:
    """Report search terms in another database than the mirror: they could not commit together."""
    ours = router.db_for_write(apps.get_model(LABEL, "SearchTerm"))
    mirrors = router.db_for_write(apps.get_model("payments_integration", "Payment"))
    if ours == mirrors:
        return []
    return [
        checks.Error(
            f'Search terms are written to the database "{ours}", the mirror to "{mirrors}".',
            hint=f'Have the database router treat the app "{LABEL}" like "payments_integration".',
            id="payments_integration.E061",
        )
    ]
