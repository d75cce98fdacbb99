"""Define indexes that not every database has."""

from __future__ import annotations

from typing import Any

from django.db import connections, models


def has_partial_indexes(using: str) -> bool:
    return bool(connections[using].features.supports_partial_indexes)


class PartialIndex(models.Index):
    """An index over the rows that meet ``only``. MariaDB does without it.

    Django's own ``condition`` would index every row there, and each ``migrate`` would print a warning.
    """

    #: Does nothing. Django always executes what an index returns.
    _NOTHING = "DO 0"

    def __init__(self, *expressions: Any, only: models.Q, **kwargs: Any) -> None:
        super().__init__(*expressions, **kwargs)
        self.only = only

    def deconstruct(self) -> Any:
        path, args, kwargs = super().deconstruct()
        return path, args, {**kwargs, "only": self.only}

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        if not schema_editor.connection.features.supports_partial_indexes:
            return self._NOTHING
        return models.Index(fields=self.fields, name=self.name, condition=self.only).create_sql(
            model, schema_editor, using, **kwargs
        )

    def remove_sql(self, model: Any, schema_editor: Any, **kwargs: Any) -> Any:
        if not schema_editor.connection.features.supports_partial_indexes:
            return self._NOTHING
        return super().remove_sql(model, schema_editor, **kwargs)
