from django.apps import AppConfig


class ReceiversConfig(AppConfig):
    name = "tests.factories.receivers"
    default_auto_field = "django.db.models.BigAutoField"
