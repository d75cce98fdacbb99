"""Compare a merchant's column byte for byte, as the text that ``str`` makes of it, like the mirror's references."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Func

from payments_integration.db import fields

#: The first digit and the length of each part of a UUID, as ``str`` writes it.
_PARTS = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))


class ExactText(Func):
    """The text of a column, in the mirror's collation.

    The mirror's index of references then serves the comparison, and the merchant's collation cannot conflict with it.
    """

    arity: int | None = 1

    def __init__(self, expression: Any, *, is_uuid: bool = False) -> None:
        self.is_uuid = is_uuid
        super().__init__(expression, output_field=models.CharField())

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **kwargs: Any) -> Any:
        sql, parameters = compiler.compile(self.get_source_expressions()[0])
        if connection.vendor == "mysql":
            text = f"CAST({sql} AS CHAR CHARACTER SET utf8mb4)"
            collation = fields.ExactCharField().db_parameters(connection)["collation"]
        elif connection.vendor == "postgresql":
            text, collation = f"CAST({sql} AS text)", '"C"'
        else:
            text, collation = f"CAST({sql} AS text)", "BINARY"
        if self.is_uuid and not connection.features.has_native_uuid_field:
            # The column holds 32 digits without hyphens.
            parts = [f"SUBSTR({text}, {first}, {length})" for first, length in _PARTS]
            joined = "CONCAT_WS('-', {})".format(", ".join(parts))
            text = joined if connection.vendor == "mysql" else " || '-' || ".join(parts)
            parameters = (*parameters,) * len(parts)
        return f"({text}) COLLATE {collation}", tuple(parameters)
