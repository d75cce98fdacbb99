"""The app as a project has it. BENCH_PROCESSING: "celery" or "inline"; BENCH_BROKER_URL: where a broker is.

BENCH_APPS: the merchant's own apps, with handlers.
"""

import os

from benchmarks.contenders.common import SECRET, common
from payments_integration.schedule import BEAT_SCHEDULE

globals().update(
    common(
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "rest_framework",
            "payments_integration",
            *os.environ.get("BENCH_APPS", "").split(),
        ],
        ROOT_URLCONF="benchmarks.contenders.app",
        PAYMENTS_INTEGRATION={
            "ACCOUNTS": {
                "default": {
                    # Nothing listens there: taking events in asks the provider for nothing.
                    "BASE_URL": os.environ.get("BENCH_PROVIDER_URL", "http://127.0.0.1:9"),
                    "API_KEY": "sk_test_bench",
                    "WEBHOOK_SECRETS": [SECRET],
                }
            },
            "PROCESSING": os.environ.get("BENCH_PROCESSING", "celery"),
        },
        CELERY_BROKER_URL=os.environ.get("BENCH_BROKER_URL", "memory://"),
        CELERY_BEAT_SCHEDULE=BEAT_SCHEDULE,
        CELERY_DB_REUSE_MAX=1000,
        CELERY_TASK_IGNORE_RESULT=True,
        CELERY_WORKER_HIJACK_ROOT_LOGGER=False,
        CELERY_WORKER_PREFETCH_MULTIPLIER=1,
    )
)
