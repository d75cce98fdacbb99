
import payments_integration.db.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='BalanceChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account', payments_integration.db.fields.ExactCharField(max_length=64, verbose_name='account')),
                ('currency', payments_integration.db.fields.ExactCharField(max_length=64, verbose_name='currency')),
                ('at', models.DateTimeField(verbose_name='at')),
                ('available', models.BigIntegerField(verbose_name='available')),
                ('pending', models.BigIntegerField(verbose_name='pending')),
                ('reserve', models.BigIntegerField(verbose_name='reserve')),
                ('hold', models.BigIntegerField(verbose_name='hold')),
                ('debt', models.BigIntegerField(verbose_name='debt')),
            ],
            options={
                'verbose_name': 'balance change',
                'verbose_name_plural': 'balance changes',
                'default_permissions': (),
                'indexes': [models.Index(fields=['account', 'currency', 'at'], name='pf_balancechange_at')],
            },
        ),
        migrations.CreateModel(
            name='ClosingBalance',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account', payments_integration.db.fields.ExactCharField(max_length=64, verbose_name='account')),
                ('currency', payments_integration.db.fields.ExactCharField(max_length=64, verbose_name='currency')),
                ('day', models.DateField(verbose_name='day')),
                ('available', models.BigIntegerField(verbose_name='available')),
                ('pending', models.BigIntegerField(verbose_name='pending')),
                ('reserve', models.BigIntegerField(verbose_name='reserve')),
                ('hold', models.BigIntegerField(verbose_name='hold')),
                ('debt', models.BigIntegerField(verbose_name='debt')),
            ],
            options={
                'verbose_name': 'closing balance',
                'verbose_name_plural': 'closing balances',
                'constraints': [models.UniqueConstraint(fields=('account', 'currency', 'day'), name='pf_closingbalance_day')],
            },
        ),
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
                'indexes': [models.Index(fields=['account', 'object_kind', 'object_id'], name='pf_movement_object'), models.Index(fields=['booked_on', 'id'], name='pf_movement_booked'), models.Index(fields=['account', 'booked_on', 'id'], name='pf_movement_by_account'), models.Index(fields=['occurred_on', 'id'], name='pf_movement_occurred'), models.Index(fields=['kind', 'booked_on', 'id'], name='pf_movement_by_kind'), models.Index(fields=['currency', 'booked_on', 'id'], name='pf_movement_by_currency')],
            },
        ),
    ]
