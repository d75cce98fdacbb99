"""A small shop that uses payments_integration the way a merchant would."""

from example_project.celery import app as celery_app

__all__ = ["celery_app"]
