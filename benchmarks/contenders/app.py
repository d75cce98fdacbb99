"""The app under measurement: its URLs. The Celery app comes along, as in every project that publishes messages."""

from django.urls import include, path

from benchmarks.contenders.worker import app

__all__ = ["app", "urlpatterns"]

urlpatterns = [path("", include("payments_integration.urls"))]
