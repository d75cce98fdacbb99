
import django.utils.timezone
import payments_integration.db.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
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
                'indexes': [models.Index(fields=['state', 'queued_at', 'id'], name='pr_receipt_by_state'), models.Index(fields=['account', 'queued_at', 'id'], name='pr_receipt_by_account'), models.Index(fields=['queued_at', 'id'], name='pr_receipt_queued')],
            },
        ),
    ]
