"""Webhook endpoints and their secrets (spec, "Webhook endpoints")."""

from __future__ import annotations

from collections.abc import Sequence

from payments_integration import conf, sync, wakeup
from payments_integration.db.transactions import refuse_transaction
from payments_integration.models import WebhookEndpoint
from payments_integration.outbox import Intent
from payments_integration.services.service import change, creation, service
from payments_integration.validation import objects
from payments_integration.validation.validator import Json, Validator


@service(WebhookEndpoint)
def create_webhook_endpoint(
    *,
    url: str,
    events: Sequence[str],
    account: str = conf.DEFAULT_ACCOUNT,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Register an address for events; its secret is stored encrypted and used from now on.

    ``url``: HTTPS (HTTP to this machine, for development). ``events``: event types of the spec, at least one.
    The returned instance has the plain secret once, as ``endpoint.secret``. Raises what ``create_payment``
    raises.
    """
    validator = Validator()
    body: Json = {
        "url": validator.url("url", url, required=True),
        "events": objects.event_types(validator, "events", events),
    }
    return creation(
        "create_webhook_endpoint",
        validator,
        body,
        account=account,
        idempotency_key=idempotency_key,
        actor=actor,
    )


@service(WebhookEndpoint)
def rotate_webhook_secret(
    endpoint: WebhookEndpoint | str,
    *,
    account: str | None = None,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Have a new signing secret made; the old one stays valid for 24 hours. Returns the WebhookEndpoint.

    The returned instance has the plain secret once, as ``endpoint.secret``. Raises what ``create_payment``
    raises.
    """
    return _change("rotate_webhook_secret", endpoint, account, idempotency_key, actor)


@service(type(None))
def delete_webhook_endpoint(
    endpoint: WebhookEndpoint | str,
    *,
    account: str | None = None,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Remove an endpoint; the row stays, marked as deleted and without its secret. Returns None.

    Raises what ``create_payment`` raises; NotFound where the provider has no such endpoint.
    """
    return _change("delete_webhook_endpoint", endpoint, account, idempotency_key, actor)


def sync_webhook_endpoints(*, account: str = conf.DEFAULT_ACCOUNT) -> list[WebhookEndpoint]:
    """GET /webhook-endpoints into the mirror; endpoints that are no longer listed are marked as gone.

    Raises ProviderError, NoAnswer, TransactionRefused.
    """
    refuse_transaction("sync_webhook_endpoints")
    rows = sync.read_endpoints(account)
    wakeup.wake(account)
    return rows


def _change(
    operation: str,
    endpoint: WebhookEndpoint | str,
    account: str | None,
    idempotency_key: str | None,
    actor: object,
) -> Intent:
    return change(
        operation,
        WebhookEndpoint,
        endpoint,
        name="endpoint",
        account=account,
        idempotency_key=idempotency_key,
        actor=actor,
    )
