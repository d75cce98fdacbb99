"""The app's worker: ``celery -A benchmarks.contenders.worker worker``."""

from celery import Celery

app = Celery("bench")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
