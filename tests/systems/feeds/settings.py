"""The settings of the test suite, with the app of the page, and a second database for its warehouse."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS
from tests.systems.feeds.page import write

FOLDER = write()
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
sys.path.insert(0, str(FOLDER))

INSTALLED_APPS = [*INSTALLED_APPS, "feeds"]
DATABASES["warehouse"] = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": ":memory:",
    "TEST": {"NAME": str(Path(tempfile.gettempdir()) / f"payments_warehouse_test_{os.getpid()}.sqlite3")},
}


class NothingInTheWarehouse:
    """Its one table is the page's."""

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool:
        return db != "warehouse"


DATABASE_ROUTERS = ["tests.systems.feeds.settings.NothingInTheWarehouse"]

FEEDS_KAFKA: dict[str, object] = {}
FEEDS_TOPIC = ""
FEEDS_TOPIC_ARN = ""
