"""Model fields of the provider's values."""

from __future__ import annotations

from typing import Any

from django.db import models


class ProviderIdField(models.CharField):  # type: ignore[type-arg]
    """An id as the provider wrote it, compared byte for byte on every database.

    MariaDB and MySQL compare text without regard to case and trailing spaces unless a binary collation without
    padding is named; PostgreSQL and SQLite compare exactly by themselves.
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
