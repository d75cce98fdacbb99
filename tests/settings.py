"""Settings of the test suite: SQLite unless an environment variable names a server."""

import os
import tempfile
from importlib import import_module
from pathlib import Path

import environ

env = environ.Env()
BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "test-secret-key-that-is-long-enough-for-the-checks-0123456789"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "UTC"
# Since Django 6.1; its test environment keeps the mails.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.urls"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular_sidecar",
    "payments_integration",
    "payments_integration.contrib.finance",
    "payments_integration.contrib.backoffice",
    "payments_integration.contrib.notify",
    "payments_integration.contrib.receipts",
    "payments_integration.contrib.reports",
    "health_check",
    "tests.factories.receivers",
    "example_project.shop",
    "example_project.demo",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
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
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

DATABASES = {"default": env.db("TEST_DATABASE_URL", default="sqlite://:memory:")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF",
    }
    # A file, not memory: the threads of a test are then as apart as the processes of a site.
    DATABASES["default"]["TEST"] = {
        "NAME": str(Path(tempfile.gettempdir()) / f"payments_integration_test_{os.getpid()}.sqlite3")
    }
elif DATABASES["default"]["ENGINE"] == "django.db.backends.mysql":
    DATABASES["default"]["OPTIONS"] = {**DATABASES["default"].get("OPTIONS", {}), "charset": "utf8mb4"}
# What a merchant may have set: "repeatable read", MariaDB's own default; or "snapshot", the same as MariaDB 11.6 and
# newer understand it (error 1020 instead of a row that is newer than the snapshot). Empty: what Django sets.
ISOLATION_LEVEL = env.str("TEST_ISOLATION_LEVEL", default="")
if ISOLATION_LEVEL and DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    DATABASES["default"]["OPTIONS"] = {
        # Of psycopg 3 or psycopg2.
        "isolation_level": import_module("django.db.backends.postgresql.psycopg_any").IsolationLevel[
            ISOLATION_LEVEL.upper().replace(" ", "_")
        ]
    }
elif ISOLATION_LEVEL and DATABASES["default"]["ENGINE"] == "django.db.backends.mysql":
    DATABASES["default"]["OPTIONS"]["isolation_level"] = ISOLATION_LEVEL.replace("snapshot", "repeatable read")
    if ISOLATION_LEVEL == "snapshot":
        DATABASES["default"]["OPTIONS"]["init_command"] = "SET innodb_snapshot_isolation = ON"

PAYMENTS_INTEGRATION = {
    "ACCOUNTS": {
        "default": {
            "BASE_URL": "http://127.0.0.1:9",  # discard: nothing listens, nothing leaves
            "API_KEY": "sk_test_default",
            "WEBHOOK_SECRETS": ["whsec_default"],
        },
        "second": {
            "BASE_URL": "http://127.0.0.1:9",
            "API_KEY": "sk_test_second",
            "WEBHOOK_SECRETS": ["whsec_second"],
        },
    },
}

# Of the example's shop, whose pages are tested too.
SHOP_SANDBOX_URL = ""
SHOP_FLOW = "hosted"
