"""The best existing peer, dj-stripe: its webhook view fetches the object from the provider, and mirrors the answer.

    python -m benchmarks.contenders.peer

makes the endpoint that deliveries go to. Fetches the account too, so that no delivery has to.
"""

from __future__ import annotations

import django

#: dj-stripe's address of an endpoint has its UUID.
ENDPOINT = "7c5b3f5e-0d0f-4b7a-9c53-3d2f6a1b8e01"


def prepare() -> None:
    django.setup()
    # In the peer's environment only.
    from djstripe.models import Account, WebhookEndpoint  # type: ignore[import-not-found]
    from djstripe.settings import djstripe_settings  # type: ignore[import-not-found]

    from benchmarks.contenders.common import SECRET

    WebhookEndpoint.objects.create(
        id="we_bench",
        djstripe_uuid=ENDPOINT,
        djstripe_owner_account=Account.get_or_retrieve_for_api_key(djstripe_settings.STRIPE_SECRET_KEY),
        livemode=False,
        enabled_events=["*"],
        secret=SECRET,
        status="enabled",
        url=f"https://shop.example.test/webhook/{ENDPOINT}/",
    )


if __name__ == "__main__":
    prepare()
