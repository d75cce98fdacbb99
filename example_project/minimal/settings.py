"""The settings of the example project with this app instead of the shop."""

from __future__ import annotations

from example_project.settings import *  # noqa: F403
from example_project.settings import BASE_DIR, INSTALLED_APPS, env

INSTALLED_APPS = [
    *(name for name in INSTALLED_APPS if not name.startswith("example_project.")),
    "example_project.minimal",
]
ROOT_URLCONF = "example_project.minimal.urls"
DATABASES = {
    "default": {
        **env.db("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'minimal.sqlite3'}"),
        # Writers wait for each other in turn, instead of failing with "database is locked".
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
}
