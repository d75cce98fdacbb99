"""The router of a merchant who sends reads to a replica."""

from __future__ import annotations

from typing import Any


class Replica:
    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica" if model._meta.app_label == "payments_integration" else "default"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"

    def allow_relation(self, *_: Any, **__: Any) -> bool:
        return True

    def allow_migrate(self, db: str, *_: Any, **__: Any) -> bool:
        return db == "default"
