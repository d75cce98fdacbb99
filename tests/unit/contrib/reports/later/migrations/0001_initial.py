from importlib import import_module


class Migration(import_module("payments_integration.migrations.0001_initial").Migration):
    """The real one."""
