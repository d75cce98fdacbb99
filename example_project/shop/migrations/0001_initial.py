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
                ('slug', models.SlugField(unique=True)),
                ('name', models.CharField(max_length=100)),
                ('description', models.TextField()),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='DepositAccount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reference', models.CharField(default=example_project.shop.models.new_account_reference, max_length=32, unique=True)),
                ('email', models.EmailField(max_length=254)),
                ('name', models.CharField(max_length=100)),
                ('country', models.CharField(choices=[('CL', 'Chile'), ('CO', 'Colombia'), ('EC', 'Ecuador'), ('PE', 'Peru'), ('MX', 'Mexico'), ('BR', 'Brazil')], max_length=2)),
                ('currency', models.CharField(choices=[('CLP', 'CLP'), ('COP', 'COP'), ('PEN', 'PEN'), ('MXN', 'MXN'), ('BRL', 'BRL'), ('USD', 'USD')], max_length=3)),
                ('method_code', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
                'constraints': [models.UniqueConstraint(fields=('email', 'currency'), name='shop_one_account')],
            },
        ),
        migrations.CreateModel(
            name='Notice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.CharField(max_length=255)),
                ('type', models.CharField(max_length=255)),
                ('object_id', models.CharField(max_length=255)),
                ('is_stale', models.BooleanField()),
                ('dispatched_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['-pk'],
                'indexes': [models.Index(fields=['event_id'], name='shop_notice_event')],
            },
        ),
        migrations.CreateModel(
            name='Price',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('currency', models.CharField(choices=[('CLP', 'CLP'), ('COP', 'COP'), ('PEN', 'PEN'), ('MXN', 'MXN'), ('BRL', 'BRL'), ('USD', 'USD')], max_length=3)),
                ('amount', models.BigIntegerField()),
                ('product', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prices', to='shop.product')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('product', 'currency'), name='shop_one_price')],
            },
        ),
        migrations.CreateModel(
            name='Order',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('submission', models.CharField(max_length=64, unique=True)),
                ('reference', models.CharField(default=example_project.shop.models.new_reference, max_length=32, unique=True)),
                ('quantity', models.PositiveIntegerField(default=1)),
                ('amount', models.BigIntegerField()),
                ('currency', models.CharField(choices=[('CLP', 'CLP'), ('COP', 'COP'), ('PEN', 'PEN'), ('MXN', 'MXN'), ('BRL', 'BRL'), ('USD', 'USD')], max_length=3)),
                ('country', models.CharField(choices=[('CL', 'Chile'), ('CO', 'Colombia'), ('EC', 'Ecuador'), ('PE', 'Peru'), ('MX', 'Mexico'), ('BR', 'Brazil')], max_length=2)),
                ('attempt', models.PositiveIntegerField(default=1)),
                ('method_code', models.CharField(max_length=255)),
                ('flow', models.CharField(choices=[('hosted', 'hosted'), ('s2s', 'server to server'), ('deposit_reference', 'deposit reference')], default='hosted', max_length=32)),
                ('refusal', models.CharField(blank=True, default='', max_length=100)),
                ('name', models.CharField(max_length=100)),
                ('email', models.EmailField(max_length=254)),
                ('status', models.CharField(choices=[('new', 'waiting for payment'), ('review', 'being reviewed'), ('partially_paid', 'paid in part'), ('paid', 'paid'), ('failed', 'payment failed'), ('expired', 'payment expired'), ('canceled', 'canceled'), ('partially_refunded', 'refunded in part'), ('refunded', 'refunded'), ('chargeback', 'charged back'), ('refused', 'not accepted')], default='new', max_length=24)),
                ('note', models.CharField(blank=True, default='', max_length=255)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('paid_at', models.DateTimeField(blank=True, null=True)),
                ('product', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='shop.product')),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
                'get_latest_by': 'created_at',
                'indexes': [models.Index(fields=['created_at'], name='shop_order_created')],
            },
        ),
    ]
