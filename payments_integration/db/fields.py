"""Model field types."""

from __future__ import annotations

from typing import Any

from django.db import models


class ExactCharField(models.CharField):  # type: ignore[type-arg]
    """Text that is compared byte for byte on every database: ids, references, account aliases.

    MariaDB and MySQL ignore case and trailing spaces unless the column has a binary collation without padding;
    PostgreSQL and SQLite compare exactly by default.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 255)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        if kwargs.get("max_length") == 255:
            del kwargs["max_length"]
        return name, path, args, kwargs

    def db_parameters(self, connection: Any) -> Any:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
        return parameters
