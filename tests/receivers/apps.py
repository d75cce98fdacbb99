from django.apps import AppConfig


class ReceiversConfig(AppConfig):
    name = "tests.receivers"
    default_auto_field = "django.db.models.BigAutoField"
