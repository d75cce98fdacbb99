"""Declare the views and their columns, and create and drop them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import connections, models, router, transaction

from payments_integration.models import (
    Balance,
    DepositReference,
    Event,
    Operation,
    Payment,
    Payout,
    Refund,
    StatusChange,
)
from payments_integration.money import DEFAULT_EXPONENT, EXPONENTS

PREFIX = "payments_v_"
#: Whole units are ``amount / 10 ^ currency_exponent``.
EXPONENT = "currency_exponent"


@dataclass(frozen=True)
class View:
    """A view on one table. It has only the columns that are listed here."""

    name: str
    model: type[models.Model]
    #: Columns of the table, in this order. Add new columns at the end, because reports may use their positions.
    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of the view. The exponent follows the currency."""
        return tuple(part for name in self.columns for part in ((name, EXPONENT) if name == "currency" else (name,)))


_TIMES = ("state_at", "synced_at", "gone_at")
_OBJECT = ("account", "object_kind", "object_id")
_BALANCE = ("available", "pending", "reserve", "hold", "debt")

# An allow list. Texts of payers, staff and the provider stay out, and so do JSON and raw bodies. A merchant_reference
# is the id of an order, which an erasure keeps; but the merchant_reference of a deposit reference names a payer.
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
if apps.is_installed("payments_integration.contrib.finance"):
    VIEWS += (
        View(
            f"{PREFIX}balance_change",
            apps.get_model("payments_finance", "BalanceChange"),
            ("id", "account", "currency", "at", *_BALANCE),
        ),
    )


def using() -> str:
    """Return the database of the app's tables."""
    return router.db_for_write(Payment)


def with_tables(alias: str) -> list[View]:
    """Return the views whose tables exist. SQLite would create the others too, and refuse to read them."""
    tables = {*connections[alias].introspection.table_names()}
    return [view for view in VIEWS if view.model._meta.db_table in tables]


def select_sql(view: View, alias: str) -> str:
    """Return the query of a view."""
    quote, meta = connections[alias].ops.quote_name, view.model._meta
    columns = [_column(view.model, name, alias) for name in view.columns]
    tables = f"{quote(meta.db_table)} t"
    if connections[alias].vendor == "postgresql":
        # Join a row to make the view read-only: PostgreSQL passes writes through a view on one table. Its planner
        # removes this row.
        tables += " CROSS JOIN (SELECT 1 AS one) read_only"
    return f"SELECT {', '.join(columns)} FROM {tables}"  # noqa: S608  (names of ours)


def _column(model: type[models.Model], name: str, alias: str) -> str:
    quote = connections[alias].ops.quote_name
    field: Any = next(field for field in model._meta.concrete_fields if field.attname == name)
    value = f"t.{quote(field.column)}"
    column = f"{value} AS {quote(name)}"
    if name != "currency":
        return column
    special = " ".join(
        f"WHEN '{code}' THEN {digits}" for code, digits in EXPONENTS.items() if digits != DEFAULT_EXPONENT
    )
    return f"{column}, CASE {value} {special} ELSE {DEFAULT_EXPONENT} END AS {quote(EXPONENT)}"


def create_statement(view: View, alias: str) -> str:
    return f"CREATE VIEW {connections[alias].ops.quote_name(view.name)} AS {select_sql(view, alias)}"


def create(alias: str, views: Iterable[View] | None = None, rights: Iterable[tuple[str, str]] = ()) -> None:
    """Create these views (None: all), or bring them up to date.

    On PostgreSQL, rights are kept, and ``rights``, as ``drop`` returned them, are granted too.
    """
    views = VIEWS if views is None else views
    with _together(alias):
        statements = {view.name: create_statement(view, alias) for view in views}
        granted = [statement for name, statement in (*drop(alias), *rights) if name in statements]
        _execute(alias, *statements.values(), *granted)


def drop(alias: str) -> list[tuple[str, str]]:
    """Drop the views that exist. Returns (a view's name, a statement that grants a right on it again)."""
    quote = connections[alias].ops.quote_name
    with _together(alias):
        rights = _rights(alias)
        _execute(alias, *(f"DROP VIEW IF EXISTS {quote(view.name)}" for view in VIEWS))
    return rights


def problems(alias: str) -> list[str]:
    """Return what is wrong with each view that is missing or out of date."""
    connection, found = connections[alias], []
    with connection.cursor() as cursor:
        existing = {table.name for table in connection.introspection.get_table_list(cursor) if table.type == "v"}
        for view in VIEWS:
            if view.name not in existing:
                found.append(f"{view.name} does not exist")
                continue
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(view.name)} LIMIT 0")  # noqa: S608  (our names)
            if tuple(column[0] for column in cursor.description) != view.names:
                found.append(f"{view.name} has other columns than this version of the app")
    return found


def _rights(alias: str) -> list[tuple[str, str]]:
    """Return the rights on the existing views, as ``drop`` does. Only PostgreSQL loses rights with a view."""
    if connections[alias].vendor != "postgresql":
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT relname, format('GRANT %%s ON %%s TO %%s%%s', privilege_type, oid::regclass,"
            " CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,"
            " CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)"
            " FROM pg_class, aclexplode(relacl)"
            " WHERE relname = ANY(%s) AND relkind = 'v' AND pg_table_is_visible(oid) AND grantee <> relowner",
            [[view.name for view in VIEWS]],
        )
        return list(cursor.fetchall())


def _execute(alias: str, *statements: str) -> None:
    with connections[alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _together(alias: str) -> AbstractContextManager[Any]:
    """Return a transaction if the database supports one for such statements."""
    return transaction.atomic(using=alias) if connections[alias].features.can_rollback_ddl else nullcontext()
