"""The Celery app: ``celery -A example_project worker`` and ``celery -A example_project beat``."""

from __future__ import annotations

import os

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

# filesystem:// with whole messages only: see example_project/broker.py.
TRANSPORT_ALIASES["filesystem"] = "example_project.broker:Transport"

app = Celery("example_project")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
