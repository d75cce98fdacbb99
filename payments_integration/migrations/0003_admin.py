from typing import Any

from django.db import migrations, models

import payments_integration.fields

BATCH = 1000


def fill_search_fields(apps: Any, schema_editor: Any) -> None:
    """What the admin searches payments by, of the rows that are there already; one batch in memory at a time."""
    payments = apps.get_model("payments_integration", "Payment").objects.using(schema_editor.connection.alias)
    last = ""
    while batch := list(payments.filter(pk__gt=last, payer__isnull=False).only("pk", "payer").order_by("pk")[:BATCH]):
        for payment in batch:
            payment.payer_email = _email(payment.payer)
            payment.payer_document = _document(payment.payer)
        payments.bulk_update(batch, ["payer_email", "payer_document"])
        last = batch[-1].pk


# As the models had it when this was written: a migration does not change with them.


def _email(payer: Any) -> str:
    email = payer.get("email") if isinstance(payer, dict) else None
    return email.strip().lower()[:254] if isinstance(email, str) and len(email) <= 254 else ""


def _document(payer: Any) -> str:
    document = payer.get("document") if isinstance(payer, dict) else None
    number = document.get("number") if isinstance(document, dict) else None
    if not isinstance(number, str) or len(number) > 64:
        return ""
    return "".join(filter(str.isalnum, number)).upper()[:64]


class Migration(migrations.Migration):
    dependencies = [
        ("payments_integration", "0002_erasures"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="operation",
            options={
                "permissions": [
                    ("approve_operation", "Can approve what another person asked for"),
                    ("close_operation", "Can mark an operation as never happened"),
                ],
                "verbose_name": "operation",
                "verbose_name_plural": "operations",
            },
        ),
        migrations.AlterModelOptions(
            name="payment",
            options={
                "permissions": [
                    ("refund_payment", "Can refund a payment"),
                    ("cancel_payment", "Can cancel a payment"),
                    ("view_personal_data", "Can see personal data of payers and recipients"),
                ],
                "verbose_name": "payment",
                "verbose_name_plural": "payments",
            },
        ),
        migrations.AlterModelOptions(
            name="payout",
            options={
                "permissions": [("create_payout", "Can send a payout"), ("cancel_payout", "Can cancel a payout")],
                "verbose_name": "payout",
                "verbose_name_plural": "payouts",
            },
        ),
        migrations.AlterModelOptions(
            name="reconciliationrun",
            options={
                "permissions": [("run_reconciliation", "Can start a reconciliation run")],
                "verbose_name": "reconciliation run",
                "verbose_name_plural": "reconciliation runs",
            },
        ),
        migrations.AlterModelOptions(
            name="webhookendpoint",
            options={
                "permissions": [
                    ("manage_webhookendpoint", "Can create and delete webhook endpoints"),
                    ("rotate_webhookendpoint", "Can rotate a webhook secret"),
                ],
                "verbose_name": "webhook endpoint",
                "verbose_name_plural": "webhook endpoints",
            },
        ),
        migrations.AddField(
            model_name="operation",
            name="actor_id",
            field=models.CharField(blank=True, default="", editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name="operation",
            name="approved_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="approved at"),
        ),
        migrations.AddField(
            model_name="operation",
            name="approved_by",
            field=models.CharField(blank=True, default="", max_length=255, verbose_name="approved by"),
        ),
        migrations.AddField(
            model_name="operation",
            name="body_digest",
            field=models.CharField(blank=True, default="", editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name="payment",
            name="payer_document",
            field=models.CharField(default="", editable=False, max_length=64, verbose_name="payer's document"),
        ),
        migrations.AddField(
            model_name="payment",
            name="payer_email",
            field=models.CharField(default="", editable=False, max_length=255, verbose_name="payer's e-mail"),
        ),
        migrations.RunPython(fill_search_fields, migrations.RunPython.noop, elidable=True),
        migrations.AddIndex(
            model_name="depositreference",
            index=models.Index(fields=["status", "created_at", "id"], name="pi_deposit_by_status"),
        ),
        migrations.AddIndex(
            model_name="depositreference",
            index=models.Index(fields=["currency", "created_at", "id"], name="pi_deposit_by_currency"),
        ),
        migrations.AddIndex(
            model_name="depositreference",
            index=models.Index(fields=["country", "created_at", "id"], name="pi_deposit_by_country"),
        ),
        migrations.AddIndex(
            model_name="depositreference",
            index=models.Index(fields=["account", "created_at", "id"], name="pi_deposit_by_account"),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["type", "created_at", "id"], name="pi_event_by_type"),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["account", "created_at", "id"], name="pi_event_by_account"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(fields=["state", "created_at", "id"], name="pi_operation_by_state"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(fields=["operation", "created_at", "id"], name="pi_operation_by_operation"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(fields=["account", "created_at", "id"], name="pi_operation_by_account"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(fields=["idempotency_key"], name="pi_operation_by_key"),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(fields=["actor_id", "operation"], name="pi_operation_by_actor"),
        ),
        migrations.AddIndex(
            model_name="payment",
            index=models.Index(fields=["status", "created_at", "id"], name="pi_payment_by_status"),
        ),
        migrations.AddIndex(
            model_name="payment",
            index=models.Index(fields=["currency", "created_at", "id"], name="pi_payment_by_currency"),
        ),
        migrations.AddIndex(
            model_name="payment",
            index=models.Index(fields=["country", "created_at", "id"], name="pi_payment_by_country"),
        ),
        migrations.AddIndex(
            model_name="payment",
            index=models.Index(fields=["method_family", "created_at", "id"], name="pi_payment_by_family"),
        ),
        migrations.AddIndex(
            model_name="payment",
            index=models.Index(fields=["account", "created_at", "id"], name="pi_payment_by_account"),
        ),
        migrations.AddIndex(
            model_name="payment",
            index=models.Index(fields=["payer_email"], name="pi_payment_email"),
        ),
        migrations.AddIndex(
            model_name="payment",
            index=models.Index(fields=["payer_document"], name="pi_payment_document"),
        ),
        migrations.AddIndex(
            model_name="payout",
            index=models.Index(fields=["status", "created_at", "id"], name="pi_payout_by_status"),
        ),
        migrations.AddIndex(
            model_name="payout",
            index=models.Index(fields=["currency", "created_at", "id"], name="pi_payout_by_currency"),
        ),
        migrations.AddIndex(
            model_name="payout",
            index=models.Index(fields=["country", "created_at", "id"], name="pi_payout_by_country"),
        ),
        migrations.AddIndex(
            model_name="payout",
            index=models.Index(fields=["account", "created_at", "id"], name="pi_payout_by_account"),
        ),
        migrations.AddIndex(
            model_name="reconciliationrun",
            index=models.Index(fields=["started_at", "id"], name="pi_run_newest"),
        ),
        migrations.AddIndex(
            model_name="refund",
            index=models.Index(fields=["status", "created_at", "id"], name="pi_refund_by_status"),
        ),
        migrations.AddIndex(
            model_name="refund",
            index=models.Index(fields=["currency", "created_at", "id"], name="pi_refund_by_currency"),
        ),
        migrations.AddIndex(
            model_name="refund",
            index=models.Index(fields=["account", "created_at", "id"], name="pi_refund_by_account"),
        ),
        migrations.AddIndex(
            model_name="statuschange",
            index=models.Index(fields=["at", "id"], name="pi_change_at"),
        ),
        migrations.AlterField(
            model_name='accountstate',
            name='lease_until',
            field=models.DateTimeField(blank=True, null=True, verbose_name='claimed until'),
        ),
        migrations.AlterField(
            model_name='accountstate',
            name='window_from',
            field=models.DateTimeField(blank=True, null=True, verbose_name='from'),
        ),
        migrations.AlterField(
            model_name='accountstate',
            name='window_to',
            field=models.DateTimeField(blank=True, null=True, verbose_name='to'),
        ),
        migrations.AlterField(
            model_name='duerefresh',
            name='account',
            field=models.CharField(max_length=64, verbose_name='account'),
        ),
        migrations.AlterField(
            model_name='duerefresh',
            name='object_id',
            field=payments_integration.fields.ProviderIdField(verbose_name='object id'),
        ),
        migrations.AlterField(
            model_name='duerefresh',
            name='object_kind',
            field=models.CharField(max_length=64, verbose_name='object'),
        ),
        migrations.AlterField(
            model_name='erasure',
            name='account',
            field=models.CharField(max_length=64, verbose_name='account'),
        ),
        migrations.AlterField(
            model_name='erasure',
            name='object_id',
            field=payments_integration.fields.ProviderIdField(verbose_name='object id'),
        ),
        migrations.AlterField(
            model_name='erasure',
            name='object_kind',
            field=models.CharField(max_length=64, verbose_name='object'),
        ),
        migrations.AlterField(
            model_name='telling',
            name='account',
            field=models.CharField(max_length=64, verbose_name='account'),
        ),
        migrations.AlterField(
            model_name='telling',
            name='next_attempt_at',
            field=models.DateTimeField(null=True, verbose_name='next attempt at'),
        ),
        migrations.AlterField(
            model_name='telling',
            name='object_id',
            field=payments_integration.fields.ProviderIdField(verbose_name='object id'),
        ),
        migrations.AlterField(
            model_name='telling',
            name='object_kind',
            field=models.CharField(max_length=64, verbose_name='object'),
        ),
        migrations.AlterField(
            model_name='webhookendpoint',
            name='previous_secret_until',
            field=models.DateTimeField(editable=False, null=True, verbose_name='previous secret valid until'),
        ),
    ]
