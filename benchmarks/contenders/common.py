"""Settings that every contender shares, so that only the code under test differs."""

from __future__ import annotations

import os
from typing import Any

import environ

#: BENCH_PREPARE: how often a statement runs before it is prepared.
_OPTIONS = {"prepare_threshold": int(os.environ["BENCH_PREPARE"])} if "BENCH_PREPARE" in os.environ else {}


def common(**own: Any) -> dict[str, Any]:
    """What a settings module puts into its globals; the database is the one that BENCH_DATABASE_URL names."""
    return {
        "SECRET_KEY": "for measurements only",
        "ALLOWED_HOSTS": ["*"],
        "USE_TZ": True,
        "MIDDLEWARE": ["django.middleware.common.CommonMiddleware"],
        "DEFAULT_AUTO_FIELD": "django.db.models.BigAutoField",
        "DATABASES": {
            "default": {
                **environ.Env.db_url_config(os.environ["BENCH_DATABASE_URL"]),
                "CONN_MAX_AGE": None,
                "OPTIONS": _OPTIONS,
            }
        },
        **own,
    }


#: What signs the deliveries.
SECRET = os.environ.get("BENCH_WEBHOOK_SECRET", "whsec_bench")
