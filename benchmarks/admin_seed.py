"""Rows for a measurement: a year of payments, and in proportion what belongs to them. PostgreSQL only."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

#: Rows of each table per payment.
EVENTS, CHANGES = 4, 2
#: Payments per row of the others.
REFUNDS, PAYOUTS, OPERATIONS, DEPOSITS = 20, 10, 2, 100

#: Common values, rare ones, and in the country one that no version knows. ``i`` is the row's number.
_PAYMENT_STATUS = """CASE WHEN i %% 1000 < 700 THEN 'succeeded' WHEN i %% 1000 < 820 THEN 'failed'
    WHEN i %% 1000 < 930 THEN 'expired' WHEN i %% 1000 < 980 THEN 'canceled' WHEN i %% 1000 < 998 THEN 'processing'
    WHEN i %% 5000 = 998 THEN 'chargeback' ELSE 'requires_action' END"""
_PAYOUT_STATUS = """CASE WHEN i %% 1000 < 950 THEN 'succeeded' WHEN i %% 1000 < 990 THEN 'failed'
    WHEN i %% 1000 < 999 THEN 'processing' ELSE 'on_hold' END"""
_COUNTRY = "CASE WHEN i %% 5003 = 7 THEN 'ZZ' ELSE (ARRAY['CL','CO','EC','PE','MX','BR'])[1 + i %% 6] END"
_CURRENCY = "(ARRAY['CLP','COP','USD','PEN','MXN','BRL'])[1 + i %% 6]"
_FAMILY = "CASE WHEN i %% 2000 = 3 THEN 'cash' ELSE (ARRAY['card','bank_transfer','wallet'])[1 + i %% 3] END"
_ACCOUNT = "CASE WHEN i %% 200 = 5 THEN 'second' ELSE 'default' END"
#: Oldest first over a year that ends now.
_AT = "now() - interval '365 days' * ((%(count)s - i)::float8 / %(count)s)"
#: Bodies that ``prune`` has blanked; a day earlier than by default, so that none becomes due meanwhile.
_IS_BLANKED = f"{_AT} < now() - interval '89 days'"
#: A tenth of a percent of all payments are of one payer; the others come now and then.
_EMAIL = "CASE WHEN i %% 1000 = 1 THEN 'office@example.com' ELSE 'payer' || i / 3 || '@example.com' END"

#: The amount of a payment as a search term; CLP has no decimals.
_AMOUNT_TERM = f"""'$' || CASE WHEN i %% 6 = 0 THEN (1000 + i %% 90000)::text
    ELSE to_char((1000 + i %% 90000) / 100.0, 'FM9999990.00') END || ' ' || lower({_CURRENCY})"""

_MIRROR = "account, state_at, state_by, answer_seconds, version, synced_at, extra"
_MIRRORED = f"{_ACCOUNT}, {_AT}, 'event', 0, 1, {_AT}, '{{}}'"

STATEMENTS: dict[str, tuple[str, int]] = {
    "payment": (
        f"""INSERT INTO payments_integration_payment (id, {_MIRROR}, status, amount, amount_received, fee, net_amount,
            currency, country, method_code, method_family, refunded_amount, merchant_reference, payer, payer_email,
            payer_document, metadata, created_at)
        SELECT 'pay_' || i, {_MIRRORED}, {_PAYMENT_STATUS}, 1000 + i %% 90000, 1000 + i %% 90000, 30, 970,
            {_CURRENCY}, {_COUNTRY}, 'a_method', {_FAMILY}, CASE WHEN i %% 20 = 0 THEN 500 ELSE 0 END, 'order-' || i,
            jsonb_build_object('name', 'Payer ' || i, 'email', {_EMAIL}, 'document',
                jsonb_build_object('type', 'RUT', 'number', 'D' || i / 3)),
            {_EMAIL}, 'D' || i / 3, '{{"cart": "1"}}', {_AT}
        FROM generate_series(1, %(count)s) AS i""",
        1,
    ),
    "event": (
        f"""INSERT INTO payments_integration_event (id, account, type, created_at, object_kind, object_id,
            received_at, source, body, content_hash, state, previous_status, attempts, error, traceparent)
        SELECT 'evt_' || i || '_' || step, {_ACCOUNT},
            'payment.' || (ARRAY['created','requires_action','processing','succeeded'])[step], {_AT}, 'payment',
            'pay_' || i, {_AT}, CASE WHEN i %% 100 = 0 THEN 'reconciliation' ELSE 'webhook' END,
            CASE WHEN NOT {_IS_BLANKED} THEN convert_to('{{"id": "evt_' || i || '_' || step
                || '", "data": {{"id": "pay_' || i || '", "note": "' || repeat('x', 200) || '"}}}}', 'UTF8') END,
            md5(i::text) || md5(step::text), CASE WHEN i %% 10007 = 5 AND step = 4 THEN 'parked' ELSE 'done' END,
            '', 0, '', ''
        FROM generate_series(1, %(count)s) AS i, generate_series(1, {EVENTS}) AS step""",
        1,
    ),
    "statuschange": (
        f"""INSERT INTO payments_integration_statuschange (account, object_kind, object_id, previous_status, status,
            at, event_id, recorded_at, state, attempts, error)
        SELECT {_ACCOUNT}, 'payment', 'pay_' || i, CASE step WHEN 1 THEN '' ELSE 'created' END,
            CASE step WHEN 1 THEN 'created' ELSE 'succeeded' END, {_AT}, 'evt_' || i || '_' || step, {_AT},
            CASE WHEN i %% 10007 = 6 THEN 'parked' ELSE 'done' END, 0, ''
        FROM generate_series(1, %(count)s) AS i, generate_series(1, {CHANGES}) AS step""",
        1,
    ),
    "refund": (
        f"""INSERT INTO payments_integration_refund (id, {_MIRROR}, status, payment_id, amount, currency, created_at)
        SELECT 'ref_' || i, {_MIRRORED}, {_PAYOUT_STATUS}, 'pay_' || i * {REFUNDS}, 500, {_CURRENCY}, {_AT}
        FROM generate_series(1, %(count)s) AS i""",
        REFUNDS,
    ),
    "payout": (
        f"""INSERT INTO payments_integration_payout (id, {_MIRROR}, status, amount, currency, country, method_code,
            destination, merchant_reference, created_at)
        SELECT 'pout_' || i, {_MIRRORED}, {_PAYOUT_STATUS}, 5000, {_CURRENCY}, {_COUNTRY}, 'a_bank',
            '{{"type": "bank_account"}}', 'payroll-' || i, {_AT}
        FROM generate_series(1, %(count)s) AS i""",
        PAYOUTS,
    ),
    "depositreference": (
        f"""INSERT INTO payments_integration_depositreference (id, {_MIRROR}, status, country, currency, method_code,
            merchant_reference, details, created_at)
        SELECT 'dep_' || i, {_MIRRORED}, CASE WHEN i %% 50 = 0 THEN 'disabled' ELSE 'active' END, {_COUNTRY},
            {_CURRENCY}, 'a_deposit', 'customer-' || i, '{{"type": "bank_transfer_details"}}', {_AT}
        FROM generate_series(1, %(count)s) AS i""",
        DEPOSITS,
    ),
    "operation": (
        f"""INSERT INTO payments_integration_operation (id, account, operation, arguments, arguments_hash, target_id,
            body, amount, currency, merchant_reference, idempotency_key, actor, actor_id, body_digest, approved_by,
            deferred, state, created_at, closed_at, attempts, may_have_run, sent_to, claim_token, result_kind,
            result_id, note, request_ids, other_objects)
        SELECT 'op_' || i, {_ACCOUNT}, CASE WHEN i %% 10 = 0 THEN 'create_refund' ELSE 'create_payment' END,
            '{{"amount": 1000}}', md5(i::text), CASE WHEN i %% 10 = 0 THEN 'pay_' || i * {OPERATIONS} ELSE '' END,
            'body', 1000, {_CURRENCY}, 'order-' || i * {OPERATIONS}, 'key-' || i, 'shop', '', '', '', false,
            CASE WHEN i %% 5003 = 9 THEN 'needs_person' WHEN i %% 100 = 9 THEN 'rejected' ELSE 'done' END, {_AT},
            {_AT}, 1, true, '', '', 'payment', 'pay_' || i * {OPERATIONS}, '', '["req_1"]', '[]'
        FROM generate_series(1, %(count)s) AS i""",
        OPERATIONS,
    ),
    # Every payer is named Payer, and of a tenth of a percent the other name is Office.
    "searchterm": (
        f"""INSERT INTO payments_backoffice_searchterm (object_kind, object_id, term, is_personal)
        SELECT 'payment', 'pay_' || i, term, is_personal FROM generate_series(1, %(count)s) AS i,
            LATERAL (VALUES ({_AMOUNT_TERM}, false), ('order-' || i, false), (i::text, false), ('payer', true),
                (CASE WHEN i %% 1000 = 1 THEN 'office' ELSE 'p' || i / 3 END, true), ({_EMAIL}, true),
                ('d' || i / 3, true), ('v' || i, true)) AS terms(term, is_personal)""",
        1,
    ),
    "objectdispatch": (
        """INSERT INTO payments_integration_objectdispatch (account, object_kind, object_id, claim_token, turn,
            event_in_hand, change_in_hand, grouping)
        SELECT 'default', 'payment', 'pay_' || i, '', 0, '', 0, '' FROM generate_series(1, %(count)s) AS i""",
        1,
    ),
}


def seed(connection: Any, payments: int, *, tables: Collection[str] = tuple(STATEMENTS)) -> float:
    """Replace all rows of these tables; returns the seconds it took. A table that fails stays as it was."""
    began = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("SET maintenance_work_mem = '512MB'")
        for table in tables:
            fill(cursor, table, payments)
        cursor.execute("VACUUM ANALYZE")
    return time.perf_counter() - began


def fill(cursor: Any, table: str, payments: int) -> None:
    from django.db import transaction

    statement, per = STATEMENTS[table]
    with transaction.atomic():
        app = "payments_backoffice" if table == "searchterm" else "payments_integration"
        _fill(cursor, f"{app}_{table}", statement, max(100, payments // per))


def _fill(cursor: Any, name: str, statement: str, count: int) -> None:
    cursor.execute(f"TRUNCATE {name} CASCADE")
    # Indexes are built faster than they are kept up to date.
    cursor.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s AND indexname NOT IN"
        " (SELECT conname FROM pg_constraint)",
        [name],
    )
    indexes = cursor.fetchall()
    for index, _definition in indexes:
        cursor.execute(f'DROP INDEX "{index}"')
    cursor.execute(statement, {"count": count})
    for _index, definition in indexes:
        cursor.execute(definition)
