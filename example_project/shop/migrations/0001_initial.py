import django.db.models.deletion
import django.utils.timezone
import example_project.shop.models
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Product',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(unique=True, verbose_name='slug')),
                ('name', models.CharField(max_length=100, verbose_name='name')),
                ('description', models.TextField(verbose_name='description')),
            ],
            options={
                'verbose_name': 'product',
                'verbose_name_plural': 'products',
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='DepositAccount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reference', models.CharField(default=example_project.shop.models.new_account_reference, max_length=32, unique=True, verbose_name='reference')),
                ('email', models.EmailField(max_length=254, verbose_name='email')),
                ('name', models.CharField(max_length=100, verbose_name='name')),
                ('country', models.CharField(choices=[('CL', 'Chile'), ('CO', 'Colombia'), ('EC', 'Ecuador'), ('PE', 'Peru'), ('MX', 'Mexico'), ('BR', 'Brazil')], max_length=2, verbose_name='country')),
                ('currency', models.CharField(choices=[('CLP', 'CLP'), ('COP', 'COP'), ('PEN', 'PEN'), ('MXN', 'MXN'), ('BRL', 'BRL'), ('USD', 'USD')], max_length=3, verbose_name='currency')),
                ('method_code', models.CharField(max_length=255, verbose_name='method code')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created at')),
            ],
            options={
                'verbose_name': 'deposit account',
                'verbose_name_plural': 'deposit accounts',
                'ordering': ['-created_at', '-pk'],
                'constraints': [models.UniqueConstraint(fields=('email', 'currency'), name='shop_one_account')],
            },
        ),
        migrations.CreateModel(
            name='Notice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.CharField(max_length=255, verbose_name='event id')),
                ('type', models.CharField(max_length=255, verbose_name='type')),
                ('object_id', models.CharField(max_length=255, verbose_name='object id')),
                ('is_stale', models.BooleanField(verbose_name='is stale')),
                ('dispatched_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='dispatched at')),
            ],
            options={
                'verbose_name': 'notice',
                'verbose_name_plural': 'notices',
                'ordering': ['-pk'],
                'indexes': [models.Index(fields=['event_id'], name='shop_notice_event')],
            },
        ),
        migrations.CreateModel(
            name='Price',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('currency', models.CharField(choices=[('CLP', 'CLP'), ('COP', 'COP'), ('PEN', 'PEN'), ('MXN', 'MXN'), ('BRL', 'BRL'), ('USD', 'USD')], max_length=3, verbose_name='currency')),
                ('amount', models.BigIntegerField(verbose_name='amount')),
                ('product', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prices', to='shop.product', verbose_name='product')),
            ],
            options={
                'verbose_name': 'price',
                'verbose_name_plural': 'prices',
                'constraints': [models.UniqueConstraint(fields=('product', 'currency'), name='shop_one_price')],
            },
        ),
        migrations.CreateModel(
            name='Order',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('submission', models.CharField(max_length=64, unique=True, verbose_name='submission')),
                ('reference', models.CharField(default=example_project.shop.models.new_reference, max_length=32, unique=True, verbose_name='reference')),
                ('quantity', models.PositiveIntegerField(default=1, verbose_name='quantity')),
                ('amount', models.BigIntegerField(verbose_name='amount')),
                ('currency', models.CharField(choices=[('CLP', 'CLP'), ('COP', 'COP'), ('PEN', 'PEN'), ('MXN', 'MXN'), ('BRL', 'BRL'), ('USD', 'USD')], max_length=3, verbose_name='currency')),
                ('country', models.CharField(choices=[('CL', 'Chile'), ('CO', 'Colombia'), ('EC', 'Ecuador'), ('PE', 'Peru'), ('MX', 'Mexico'), ('BR', 'Brazil')], max_length=2, verbose_name='country')),
                ('key', models.CharField(max_length=255, verbose_name='idempotency key')),
                ('method_code', models.CharField(max_length=255, verbose_name='method code')),
                ('flow', models.CharField(choices=[('hosted', 'hosted'), ('s2s', 'server to server'), ('deposit_reference', 'deposit reference')], default='hosted', max_length=32, verbose_name='flow')),
                ('refusal', models.CharField(blank=True, default='', max_length=100, verbose_name='refusal')),
                ('name', models.CharField(max_length=100, verbose_name='name')),
                ('email', models.EmailField(max_length=254, verbose_name='email')),
                ('status', models.CharField(choices=[('new', 'waiting for payment'), ('review', 'being reviewed'), ('partially_paid', 'paid in part'), ('paid', 'paid'), ('failed', 'payment failed'), ('expired', 'payment expired'), ('canceled', 'canceled'), ('partially_refunded', 'refunded in part'), ('refunded', 'refunded'), ('chargeback', 'charged back'), ('refused', 'not accepted')], default='new', max_length=24, verbose_name='status')),
                ('note', models.CharField(blank=True, default='', max_length=255, verbose_name='note')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created at')),
                ('paid_at', models.DateTimeField(blank=True, null=True, verbose_name='paid at')),
                ('product', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='shop.product', verbose_name='product')),
            ],
            options={
                'verbose_name': 'order',
                'verbose_name_plural': 'orders',
                'ordering': ['-created_at', '-pk'],
                'get_latest_by': 'created_at',
                'indexes': [models.Index(fields=['created_at'], name='shop_order_created')],
            },
        ),
    ]
