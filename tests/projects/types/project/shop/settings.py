"""The settings of a shop, as the install guide shows them."""

from payments_integration import conf

SECRET_KEY = "not-a-secret"
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "payments_integration",
    "shop",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
PAYMENTS_INTEGRATION = conf.from_env(env_file="settings.env")
