"""Webhook endpoints and their secrets (spec, "Webhook endpoints")."""

from __future__ import annotations

from collections.abc import Sequence

from payments_integration import conf
from payments_integration.models import WebhookEndpoint
from payments_integration.services import shapes
from payments_integration.services.calls import sends
from payments_integration.services.checks import Checks, Json
from payments_integration.services.intents import Intent, check_size, target
from payments_integration.services.recipes import (
    CREATE_WEBHOOK_ENDPOINT,
    DELETE_WEBHOOK_ENDPOINT,
    ROTATE_WEBHOOK_SECRET,
)


@sends(WebhookEndpoint)
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
    checks = Checks()
    body: Json = {
        "url": checks.url("url", url, required=True),
        "events": shapes.event_types(checks, "events", events),
    }
    key, who = checks.key("idempotency_key", idempotency_key), checks.actor("actor", actor)
    checks.finish()
    check_size(checks, body)
    checks.finish()
    return Intent(
        operation=CREATE_WEBHOOK_ENDPOINT,
        account=account,
        arguments=body,
        body=body,
        idempotency_key=key,
        actor=who,
    )


@sends(WebhookEndpoint)
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
    return _on_endpoint(ROTATE_WEBHOOK_SECRET, endpoint, account, idempotency_key, actor)


@sends(type(None))
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
    return _on_endpoint(DELETE_WEBHOOK_ENDPOINT, endpoint, account, idempotency_key, actor)


def _on_endpoint(
    operation: str,
    endpoint: WebhookEndpoint | str,
    account: str | None,
    idempotency_key: str | None,
    actor: object,
) -> Intent:
    checks = Checks()
    alias, object_id, _row = target(checks, "endpoint", WebhookEndpoint, endpoint, "whk_", account)
    key, who = checks.key("idempotency_key", idempotency_key), checks.actor("actor", actor)
    checks.finish()
    return Intent(
        operation=operation,
        account=alias,
        arguments={"endpoint": object_id},
        target_id=object_id,
        idempotency_key=key,
        actor=who,
    )
