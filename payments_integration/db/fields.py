"""Model field types."""

from __future__ import annotations

from typing import Any

from django.db import models


class ExactCharField(models.CharField):  # type: ignore[type-arg]
    """Text that is compared byte for byte on every database: ids, references, account aliases.

    MariaDB and MySQL ignore case and trailing spaces unless the column has a binary collation without padding;
    PostgreSQL and SQLite compare exactly by default. On PostgreSQL the collation "C" makes one index serve equality,
    the order of bytes and prefixes. For prefixes Django would add a second index to each key, and each INSERT would
    write to both.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 255)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        if kwargs.get("max_length") == 255:
            del kwargs["max_length"]
        return name, path, args, kwargs

    def db_type(self, connection: Any) -> Any:
        if connection.vendor == "postgresql":
            # The same type by its full name: Django adds the second index where the name begins with "varchar".
            return f"character varying({self.max_length})"
        return super().db_type(connection)

    def db_parameters(self, connection: Any) -> Any:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
        elif connection.vendor == "postgresql":
            parameters["collation"] = "C"
        return parameters
