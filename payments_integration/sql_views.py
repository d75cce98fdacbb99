"""SQL views with stable names for reports, without personal data and free text.

``payments_views`` creates them. A migration may change or replace the tables below them, so ``migrate`` pauses them
first: a paused view still exists, and a query on it fails. Afterwards ``migrate`` gives them their content again. If
it fails in between, the next one does so.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, ProgrammingError, connections, models, router, transaction
from django.db.models.signals import post_migrate, pre_migrate

from payments_integration.models import (
    Balance,
    BalanceChange,
    DepositReference,
    Event,
    Operation,
    Payment,
    Payout,
    Refund,
    StatusChange,
)
from payments_integration.money import DEFAULT_EXPONENT, EXPONENTS

logger = logging.getLogger(__name__)

PREFIX = "payments_v_"
#: Whole units are ``amount / 10 ^ currency_exponent``.
EXPONENT = "currency_exponent"
_PAUSED = "payments_views: a migration is running, or has failed"


@dataclass(frozen=True)
class View:
    """A view on one table. It has the columns that are listed here, and no others."""

    name: str
    model: type[models.Model]
    #: Columns of the table in this order. Add new ones at the end: PostgreSQL cannot replace a view otherwise.
    columns: tuple[str, ...]
    #: A foreign key whose row gives the columns after it.
    parent: str = ""
    parent_columns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of the view: the exponent follows the currency."""
        names = (*self.columns, *self.parent_columns)
        return tuple(part for name in names for part in ((name, EXPONENT) if name == "currency" else (name,)))


_TIMES = ("state_at", "synced_at", "gone_at")
_OBJECT = ("account", "object_kind", "object_id")
_BALANCE = ("available", "pending", "reserve", "hold", "debt")

# An allow list. Texts of payers, staff and the provider stay out, and so do JSON and raw bodies. A merchant_reference
# is the id of an order, which an erasure keeps; that of a deposit reference names a payer.
VIEWS: tuple[View, ...] = (
    View(
        f"{PREFIX}payment",
        Payment,
        ("id", "account", "status", "amount", "amount_received", "fee", "net_amount", "refunded_amount", "currency",
         "country", "method_code", "method_family", "flow", "merchant_reference", "created_at", "expires_at",
         "succeeded_at", *_TIMES),
    ),
    View(
        f"{PREFIX}payout",
        Payout,
        ("id", "account", "status", "amount", "fee", "currency", "country", "method_code", "merchant_reference",
         "refund_id", "created_at", "succeeded_at", *_TIMES),
    ),
    View(
        f"{PREFIX}refund",
        Refund,
        ("id", "account", "status", "payment_id", "payout_id", "amount", "currency", "created_at", *_TIMES),
    ),
    View(
        f"{PREFIX}deposit_reference",
        DepositReference,
        ("id", "account", "status", "currency", "country", "method_code", "created_at", *_TIMES),
    ),
    View(f"{PREFIX}balance", Balance, ("id", "account", "currency", *_BALANCE, "updated_at", *_TIMES)),
    View(
        f"{PREFIX}balance_change",
        BalanceChange,
        ("id", "balance_id", "at", *_BALANCE),
        parent="balance",
        parent_columns=("account", "currency"),
    ),
    View(
        f"{PREFIX}status_change",
        StatusChange,
        ("id", *_OBJECT, "previous_status", "status", "at", "event_id", "recorded_at", "dispatched_at"),
    ),
    View(
        f"{PREFIX}event",
        Event,
        ("id", *_OBJECT, "type", "state", "source", "previous_status", "attempts", "created_at", "received_at",
         "dispatched_at"),
    ),
    View(
        f"{PREFIX}operation",
        Operation,
        ("id", "account", "operation", "state", "target_id", "result_kind", "result_id", "amount", "currency",
         "merchant_reference", "deferred", "attempts", "created_at", "approved_at", "first_sent_at", "last_sent_at",
         "closed_at"),
    ),
)  # fmt: skip

#: The types on PostgreSQL, where a view can only be replaced if its types stay as they are.
_POSTGRES_TYPES = {
    "BigAutoField": "bigint",
    "BigIntegerField": "bigint",
    "BooleanField": "boolean",
    "CharField": "text",
    "DateTimeField": "timestamp with time zone",
    "PositiveIntegerField": "bigint",
}


def using() -> str:
    """The database of the app's tables."""
    return router.db_for_write(Payment)


def select_sql(view: View, alias: str) -> str:
    """The query of a view."""
    quote, meta = connections[alias].ops.quote_name, view.model._meta
    columns = [_column(view.model, name, "t", alias) for name in view.columns]
    tables = f"{quote(meta.db_table)} t"
    if view.parent:
        key: Any = meta.get_field(view.parent)
        parent = key.related_model
        columns += [_column(parent, name, "p", alias) for name in view.parent_columns]
        tables += (
            f" JOIN {quote(parent._meta.db_table)} p ON p.{quote(parent._meta.pk.column)} = t.{quote(key.column)}"
        )
    elif connections[alias].vendor == "postgresql":
        # PostgreSQL passes writes through a view on one table. It removes this row when it plans a query.
        tables += " CROSS JOIN (SELECT 1 AS one) read_only"
    return f"SELECT {', '.join(columns)} FROM {tables}"  # noqa: S608  (names of ours)


def _column(model: type[models.Model], name: str, table: str, alias: str) -> str:
    connection = connections[alias]
    quote = connection.ops.quote_name
    field: Any = next(field for field in model._meta.concrete_fields if field.attname == name)
    value = f"{table}.{quote(field.column)}"
    if connection.vendor == "postgresql":
        kind = getattr(field, "target_field", field).get_internal_type()
        value = f"CAST({value} AS {_POSTGRES_TYPES[kind]})"
    column = f"{value} AS {quote(name)}"
    if name != "currency":
        return column
    special = " ".join(
        f"WHEN '{code}' THEN {digits}" for code, digits in EXPONENTS.items() if digits != DEFAULT_EXPONENT
    )
    return f"{column}, CASE {value} {special} ELSE {DEFAULT_EXPONENT} END AS {quote(EXPONENT)}"


def create_statements(view: View, alias: str) -> list[str]:
    """What creates the view, or replaces it."""
    return _replacing(view.name, select_sql(view, alias), alias)


def drop_statement(view: View, alias: str) -> str:
    return f"DROP VIEW IF EXISTS {connections[alias].ops.quote_name(view.name)}"


def create(alias: str) -> None:
    """Create the views, or bring them up to date. On PostgreSQL grants and views of yours on top of them stay."""
    with _together(alias):
        for view in VIEWS:
            _create(view, alias)


def drop(alias: str) -> None:
    """Drop the views that exist."""
    with _together(alias):
        _execute(alias, *(drop_statement(view, alias) for view in VIEWS))


def problems(alias: str) -> dict[View, str]:
    """The views that are missing, paused or out of date, and what is wrong with each."""
    existing, found = _existing(alias), {}
    for view in VIEWS:
        if view.name not in existing:
            found[view] = f"{view.name} does not exist"
        elif (columns := _columns(view.name, alias)) is None:
            found[view] = f"{view.name} cannot be read"
        elif columns != view.names:
            found[view] = f"{view.name} has other columns than this version of the app"
    return found


def pause(alias: str) -> None:
    """Detach the views that exist from the tables. A query on one of them fails until ``create``."""
    existing = _existing(alias)
    with _together(alias):
        for view in VIEWS:
            if view.name in existing:
                _execute(alias, *_replacing(view.name, _paused_sql(view.name, alias), alias))


def connect(config: Any) -> None:
    """Have ``migrate`` pause the views before the app's migrations and create them again afterwards."""
    pre_migrate.connect(_before_migrations, sender=config, dispatch_uid="payments_views")
    post_migrate.connect(_after_migrations, sender=config, dispatch_uid="payments_views")


def _before_migrations(sender: Any, using: str, plan: Any = None, **_: Any) -> None:
    if plan is None or any(migration.app_label == sender.label for migration, _ in plan):
        pause(using)


def _after_migrations(using: str, **_: Any) -> None:
    # Without views there is nothing to do. Those that are as they should be stay: replacing one waits for its readers.
    for view in problems(using) if _existing(using) else ():
        try:
            with _together(using):
                _create(view, using)
        except DatabaseError as error:
            # For instance, the migrations went back to an older version of the tables, or to none.
            logger.warning("%s stays paused: %s", view.name, error)


def _existing(alias: str) -> set[str]:
    connection = connections[alias]
    with connection.cursor() as cursor:
        found = {table.name for table in connection.introspection.get_table_list(cursor) if table.type == "v"}
    return found & {view.name for view in VIEWS}


def _columns(name: str, alias: str) -> tuple[str, ...] | None:
    """The columns of a view; None if it cannot be read."""
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(f"SELECT * FROM {connections[alias].ops.quote_name(name)} LIMIT 0")  # noqa: S608
            return tuple(column[0] for column in cursor.description)
    except DatabaseError:
        return None


def _create(view: View, alias: str) -> None:
    try:
        with _together(alias):
            _execute(alias, *create_statements(view, alias))
    except ProgrammingError:
        if connections[alias].vendor != "postgresql":
            raise
        # Its columns or types changed. To drop it loses the rights that were granted on it.
        with transaction.atomic(using=alias):
            grants = _grants(view, alias)
            _execute(alias, drop_statement(view, alias), *create_statements(view, alias), *grants)


def _grants(view: View, alias: str) -> list[str]:
    """On PostgreSQL: what grants the rights on a view, and on those of its columns that stay, again."""
    columns = ", ".join(["%s"] * len(view.names))
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT format('GRANT %%s%%s ON %%s TO %%s%%s', acl.privilege_type,"  # noqa: S608  (only placeholders)
            "   CASE WHEN acl.attname IS NULL THEN '' ELSE format(' (%%I)', acl.attname) END, acl.oid::regclass,"
            "   CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END,"
            "   CASE WHEN acl.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)"
            " FROM (SELECT c.oid, c.relowner, NULL::name AS attname, (aclexplode(c.relacl)).* FROM pg_class c"
            "       UNION ALL SELECT c.oid, c.relowner, a.attname, (aclexplode(a.attacl)).*"
            "       FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            f"      WHERE a.attname IN ({columns})) acl"
            " WHERE acl.oid = to_regclass(%s) AND acl.grantee <> acl.relowner",
            [*view.names, connections[alias].ops.quote_name(view.name)],
        )
        return [row[0] for row in cursor.fetchall()]


def _paused_sql(name: str, alias: str) -> str:
    connection = connections[alias]
    # Not even a count of rows may succeed: it would be taken for the truth.
    if connection.vendor == "sqlite":
        return f"SELECT '{_PAUSED}' AS paused WHERE json('{_PAUSED}')"  # no JSON
    if connection.vendor == "mysql":
        return f"SELECT '{_PAUSED}' AS paused FROM DUAL WHERE (SELECT 1 UNION SELECT 2)"  # noqa: S608  (two rows)
    # The same columns, because other views may use them. The condition cannot be cast, so each query fails.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT string_agg(format('CAST(NULL AS %%s)%%s AS %%I', format_type(a.atttypid, a.atttypmod),"
            "   CASE WHEN c.oid IS NULL THEN '' ELSE format(' COLLATE %%I.%%I', n.nspname, c.collname) END,"
            "   a.attname),"
            "   ', ' ORDER BY a.attnum)"
            " FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation"
            " LEFT JOIN pg_namespace n ON n.oid = c.collnamespace"
            " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped",
            [connection.ops.quote_name(name)],
        )
        return f"SELECT {cursor.fetchone()[0]} WHERE CAST(CAST('{_PAUSED}' AS text) AS boolean)"


def _replacing(name: str, query: str, alias: str) -> list[str]:
    connection = connections[alias]
    quoted = connection.ops.quote_name(name)
    if connection.vendor == "sqlite":
        return [f"DROP VIEW IF EXISTS {quoted}", f"CREATE VIEW {quoted} AS {query}"]
    return [f"CREATE OR REPLACE VIEW {quoted} AS {query}"]


def _execute(alias: str, *statements: str) -> None:
    with connections[alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _together(alias: str) -> AbstractContextManager[Any]:
    """A transaction, where the database has one for such statements."""
    return transaction.atomic(using=alias) if connections[alias].features.can_rollback_ddl else nullcontext()
