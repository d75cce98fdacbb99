from importlib import import_module

from django.db import migrations, models


def stop(apps, schema_editor):
    """A test replaces it by a function that raises."""


class Migration(migrations.Migration):
    dependencies = [("payments_integration", "0001_initial")]
    operations = [
        migrations.AlterField("payment", "status", models.CharField(max_length=99)),
        migrations.RunPython(lambda *arguments: import_module(__name__).stop(*arguments), migrations.RunPython.noop),
        migrations.AlterField("payment", "amount", models.DecimalField(max_digits=20, decimal_places=0)),
        migrations.AddField("payment", "nickname", models.TextField(default="")),
    ]
