"""Write webhook endpoints and keep their secrets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from django.core.signals import setting_changed
from django.db import router
from django.utils import timezone

from payments_integration import conf, schemas
from payments_integration.db.encryption import DecryptionError, decrypt, encrypt
from payments_integration.db.transactions import repeatable, updated
from payments_integration.models import WebhookEndpoint
from payments_integration.projection.answers import write_answer
from payments_integration.projection.reads import snapshot

#: The old secret stays valid for this long after a rotation (spec, "Webhook endpoints").
PREVIOUS_SECRET_VALID = timedelta(hours=24)
#: A list may lack an endpoint that was written this shortly before the request.
LIST_SLACK = timedelta(seconds=1)
#: How long the webhook view uses the secrets that it has read.
SECRET_CACHE_SECONDS = 10.0


class _Secrets(NamedTuple):
    """The secrets of an account, and the ids of endpoints whose secret no key can read."""

    known: tuple[str, ...]
    unreadable: tuple[str, ...]
    #: The settings' secrets when they were read. A test may change them in place.
    configured: tuple[str, ...]
    #: Until when they are used (``time.monotonic()``).
    until: float


_secrets: dict[str, _Secrets] = {}


def write_endpoints(
    account: str, resources: Iterable[schemas.WebhookEndpoint], *, answered_at: datetime | None, duration: float
) -> list[WebhookEndpoint]:
    """Write the answer to GET /webhook-endpoints, and mark rows that it does not list as gone.

    Call it directly after the answer. Rows written since the request was sent are left alone.
    """
    asked_at = timezone.now() - timedelta(seconds=duration) - LIST_SLACK
    rows = [
        write_answer(
            account,
            resource,
            answered_at=answered_at,
            duration=duration,
            before=snapshot(resource.object, account, resource.id),
        )
        for resource in resources
    ]
    unlisted = WebhookEndpoint.objects.exclude(pk__in=[row.pk for row in rows])
    unlisted = unlisted.filter(account=account, deleted_at=None, gone_at=None, synced_at__lt=asked_at)
    updated(unlisted, gone_at=timezone.now())
    return rows


def store_secret(
    account: str, endpoint_id: str, secret: str, *, asked_at: datetime | None = None, in_doubt: bool = False
) -> bool:
    """Store a secret from create or rotate, encrypted. The previous secret stays valid for 24 hours.

    Returns False if a rotation is needed within 24 hours, because another secret was stored after ``asked_at``, the
    time of the first request. It is unknown which of the two is newer, so both are kept for 24 hours. ``in_doubt``:
    assume so without comparing times.
    """

    def store() -> bool:
        now = timezone.now()
        endpoint = WebhookEndpoint.objects.select_for_update().get(pk=endpoint_id, account=account)

        def update(*names: str) -> None:
            WebhookEndpoint.objects.filter(pk=endpoint_id).update(**{name: getattr(endpoint, name) for name in names})

        if endpoint.secret_token:
            try:
                known = decrypt(endpoint.secret_token)
            except DecryptionError:
                # Its encryption key is lost, so it can no longer verify anything.
                endpoint.previous_secret_token, endpoint.previous_secret_until = "", None
            else:
                if known == secret:
                    return True
                if in_doubt or (asked_at is not None and endpoint.secret_since and asked_at <= endpoint.secret_since):
                    endpoint.previous_secret_token = encrypt(secret)
                    endpoint.previous_secret_until = now + PREVIOUS_SECRET_VALID
                    # A time from a clock that was ahead would put every later secret in doubt too.
                    endpoint.secret_since = min(endpoint.secret_since or now, now)
                    update("secret_since", "previous_secret_token", "previous_secret_until")
                    return False
                endpoint.previous_secret_token = endpoint.secret_token
                endpoint.previous_secret_until = now + PREVIOUS_SECRET_VALID
        endpoint.secret_token = encrypt(secret)
        endpoint.secret_since = now
        update("secret_token", "secret_since", "previous_secret_token", "previous_secret_until")
        return True

    is_current = repeatable(store, using=router.db_for_write(WebhookEndpoint))
    forget_secrets()
    return is_current


def mark_endpoint_deleted(account: str, endpoint_id: str) -> None:
    """Record that the provider deleted the endpoint, and delete its secrets."""
    WebhookEndpoint.objects.filter(pk=endpoint_id, account=account, deleted_at=None).update(
        deleted_at=timezone.now(), status="disabled", secret_token="", previous_secret_token=""
    )
    forget_secrets()


def active_secrets(account: str) -> tuple[str, ...]:
    """Return all secrets that may sign a delivery to this account now, first the settings' secrets.

    Cached for ten seconds. A stored secret that no key can read is left out.
    """
    return _read_secrets(account).known


def unreadable_secrets(account: str) -> tuple[str, ...]:
    """Return the ids of endpoints with a valid secret that no key can read. Cached likewise."""
    return _read_secrets(account).unreadable


def has_unreadable_secret(endpoint: WebhookEndpoint) -> bool:
    """Return True if no key can read a secret of this endpoint that is valid now."""
    return any(_decrypted(token) is None for token in _valid_tokens(endpoint))


def _read_secrets(account: str) -> _Secrets:
    cached, configured = _secrets.get(account), conf.account(account).webhook_secrets
    if cached is not None and cached.configured == configured and time.monotonic() < cached.until:
        return cached
    found: list[str] = list(configured)
    unreadable: list[str] = []
    for endpoint in WebhookEndpoint.objects.filter(account=account, deleted_at=None).exclude(secret_token=""):
        for token in _valid_tokens(endpoint):
            if (secret := _decrypted(token)) is not None:
                found.append(secret)
            else:
                unreadable.append(endpoint.pk)
    until = time.monotonic() + SECRET_CACHE_SECONDS
    secrets = _Secrets(tuple(dict.fromkeys(found)), tuple(dict.fromkeys(unreadable)), configured, until)
    _secrets[account] = secrets
    return secrets


def _valid_tokens(endpoint: WebhookEndpoint) -> list[str]:
    until = endpoint.previous_secret_until
    previous = endpoint.previous_secret_token if until is not None and until > timezone.now() else ""
    return [token for token in (endpoint.secret_token, previous) if token]


def _decrypted(token: str) -> str | None:
    try:
        return decrypt(token)
    except DecryptionError:
        return None


def forget_secrets(**_: object) -> None:
    """Clear this process's cache of secrets. Other processes read them again within ten seconds."""
    _secrets.clear()


setting_changed.connect(forget_secrets, dispatch_uid="payments_integration.forget_secrets")
