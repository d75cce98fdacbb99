"""dj-stripe as a project has it. BENCH_STRIPE_URL: where its provider is."""

import os

from benchmarks.contenders.common import common

globals().update(
    common(
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "djstripe"],
        ROOT_URLCONF="djstripe.urls",
        STRIPE_LIVE_MODE=False,
        STRIPE_TEST_SECRET_KEY="sk_test_" + "b" * 24,  # it wants the shape of one
        STRIPE_API_HOST=os.environ["BENCH_STRIPE_URL"],
        DJSTRIPE_FOREIGN_KEY_TO_FIELD="id",  # as for a new installation
        SILENCED_SYSTEM_CHECKS=["djstripe.W002"],  # that the provider is another one than Stripe is meant
    )
)
