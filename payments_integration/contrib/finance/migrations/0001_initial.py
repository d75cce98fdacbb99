
import django.utils.timezone
import payments_integration.db.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Movement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account', payments_integration.db.fields.ExactCharField(max_length=64, verbose_name='account')),
                ('object_kind', models.CharField(max_length=64, verbose_name='object')),
                ('object_id', payments_integration.db.fields.ExactCharField(verbose_name='object id')),
                ('kind', models.CharField(choices=[('payment', 'payment'), ('payment_fee', 'fee of a payment'), ('refund', 'refund'), ('chargeback', 'chargeback'), ('payout', 'payout'), ('payout_fee', 'fee of a payout')], max_length=16, verbose_name='kind')),
                ('currency', payments_integration.db.fields.ExactCharField(max_length=64, verbose_name='currency')),
                ('amount', models.BigIntegerField(verbose_name='amount')),
                ('occurred_at', models.DateTimeField(verbose_name='occurred at')),
                ('recorded_at', models.DateTimeField(verbose_name='recorded at')),
                ('occurred_on', models.DateField(verbose_name='occurred on')),
                ('booked_on', models.DateField(verbose_name='booked on')),
            ],
            options={
                'verbose_name': 'movement',
                'verbose_name_plural': 'movements',
                'indexes': [models.Index(fields=['account', 'object_kind', 'object_id'], name='pf_movement_object'), models.Index(fields=['booked_on', 'id'], name='pf_movement_booked'), models.Index(fields=['account', 'booked_on', 'id'], name='pf_movement_by_account'), models.Index(fields=['occurred_on'], name='pf_movement_occurred')],
            },
        ),
        migrations.CreateModel(
            name='ReceiptMail',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account', payments_integration.db.fields.ExactCharField(max_length=64, verbose_name='account')),
                ('payment_id', payments_integration.db.fields.ExactCharField(unique=True, verbose_name='payment')),
                ('state', models.CharField(choices=[('queued', 'waiting to be sent'), ('sending', 'being sent'), ('sent', 'sent'), ('unknown', 'outcome unknown'), ('failed', 'failed'), ('skipped', 'not sent')], default='queued', max_length=16, verbose_name='state')),
                ('reason', models.CharField(blank=True, default='', max_length=64, verbose_name='reason')),
                ('queued_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='queued at')),
                ('tried_at', models.DateTimeField(blank=True, null=True, verbose_name='tried at')),
            ],
            options={
                'verbose_name': 'receipt by mail',
                'verbose_name_plural': 'receipts by mail',
                'permissions': [('send_receiptmail', 'Can send a receipt by mail again')],
                'indexes': [models.Index(fields=['state', 'queued_at', 'id'], name='pf_receipt_by_state'), models.Index(fields=['account', 'queued_at', 'id'], name='pf_receipt_by_account'), models.Index(fields=['queued_at', 'id'], name='pf_receipt_queued')],
            },
        ),
    ]
