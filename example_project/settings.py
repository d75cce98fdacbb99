"""Settings of the example project, all from the environment; nothing needs to be set.

A file ``.env`` beside manage.py is read if it exists. ``python manage.py demo`` sets these variables for itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import django
import environ
from django.core.exceptions import ImproperlyConfigured

from payments_integration.conf import from_env
from payments_integration.schedule import BEAT_SCHEDULE

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
if (BASE_DIR / ".env").exists():
    env.read_env(BASE_DIR / ".env")

DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env.str("SECRET_KEY", default="")
if not SECRET_KEY:
    if not DEBUG:
        raise ImproperlyConfigured("Set SECRET_KEY: without DEBUG there is no default for it.")
    SECRET_KEY = "an-example-key-for-development-only-never-for-production-0123456789"  # noqa: S105

ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rest_framework",
    # Swagger UI, on /payments/api/try/.
    "drf_spectacular_sidecar",
    "payments_integration",
    "payments_integration.contrib.finance",
    "payments_integration.contrib.backoffice",
    "payments_integration.contrib.receipts",
    "example_project.shop",
    # The command ``demo``.
    "example_project.demo",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    # The language that the payer chose in the footer, or that the browser asks for.
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "example_project" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES: dict[str, Any] = {"default": env.db("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Writers wait for each other in turn, instead of failing with "database is locked".
    DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
elif DATABASES["default"]["ENGINE"] == "django.db.backends.mysql":
    DATABASES["default"].setdefault("OPTIONS", {})["charset"] = "utf8mb4"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("es", "Español"), ("pt-br", "Português (Brasil)")]
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
STATIC_ROOT = env.path("STATIC_ROOT", default=str(BASE_DIR / "var" / "static"))

# Where `python manage.py payments_sandbox` listens.
PROVIDER_URL = os.environ.setdefault("PAYMENTS_BASE_URL", "http://127.0.0.1:8400")
os.environ.setdefault("PAYMENTS_API_KEY", "sk_test_sandbox")
# PAYMENTS_PROCESSING=celery needs a worker and beat.
PAYMENTS_INTEGRATION = from_env()
PAYMENTS_RECEIPT_ISSUER = "Example shop\nAv. Siempre Viva 742, Santiago"

#: Messages are files in a folder: no server is needed. Any other broker goes into BROKER_URL.
CELERY_BROKER_URL = env.str("BROKER_URL", default="filesystem://")
BROKER_FOLDER = Path(env.str("BROKER_FOLDER", default=str(BASE_DIR / "var" / "broker")))
if CELERY_BROKER_URL == "filesystem://":
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(BROKER_FOLDER / "messages"),
        "data_folder_out": str(BROKER_FOLDER / "messages"),
        "control_folder": str(BROKER_FOLDER / "control"),
        "processed_folder": str(BROKER_FOLDER / "processed"),
        "polling_interval": 0.1,
    }
elif CELERY_BROKER_URL.startswith("redis"):
    # A connection that died without a word is noticed within half a minute, not never.
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
    }
elif CELERY_BROKER_URL.startswith("amqp"):
    # The same; and a message counts as sent when the broker has it.
    CELERY_BROKER_HEARTBEAT = 10
    CELERY_BROKER_TRANSPORT_OPTIONS = {"confirm_publish": True, "read_timeout": 10, "write_timeout": 10}
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# Started before its broker, or without it for hours: wait for it.
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# A worker takes no more than it works on: the rest is for those that are free.
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
#: The app's schedule; SCHEDULE_RECONCILE_EVENTS=5 (seconds) and the like change an entry.
CELERY_BEAT_SCHEDULE = {
    name: {
        **entry,
        "schedule": env.float(f"SCHEDULE_{name.rpartition('.')[2].upper()}", default=entry["schedule"]),
    }
    for name, entry in BEAT_SCHEDULE.items()
}

# Mails are printed; a shop sends them. The first is the setting since Django 6.1, the second the one before.
_EMAIL_BACKEND = env.str("EMAIL_BACKEND", default="django.core.mail.backends.console.EmailBackend")
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _EMAIL_BACKEND}}
else:
    EMAIL_BACKEND = _EMAIL_BACKEND

#: Where a person can play the payer; the shop links to it. Empty: this is no test.
SHOP_SANDBOX_URL = env.str("SHOP_SANDBOX_URL", default=PROVIDER_URL if DEBUG else "")

#: Where a payer pays: ``hosted``, on the provider's page, or ``s2s``, on the order's page.
SHOP_FLOW = env.str("SHOP_FLOW", default="hosted")
if SHOP_FLOW not in ("hosted", "s2s"):
    raise ImproperlyConfigured(f"SHOP_FLOW is hosted or s2s, not {SHOP_FLOW!r}.")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO")},
}
