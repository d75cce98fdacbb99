"""Manage webhook endpoints and their secrets (spec, "Webhook endpoints")."""

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
    """Register an address for events; its secret is stored encrypted and used from now on (spec, "Webhook endpoints").

    ``account``, ``idempotency_key``, ``actor`` and the errors are the same as in ``create_payment``.

    Args:
        url: An https:// address (http:// to this machine, for development).
        events: At least one event type of the spec.

    Returns:
        The mirrored endpoint. This instance has the plain secret once, as ``endpoint.secret``.
    """
    validator = Validator()
    body: Json = {
        "url": validator.url("url", url, required=True),
        "events": objects.event_types(validator, "events", events),
    }
    return creation(validator, body, account=account, idempotency_key=idempotency_key, actor=actor)


@service(WebhookEndpoint)
def rotate_webhook_secret(
    endpoint: WebhookEndpoint | str,
    *,
    account: str | None = None,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Make the provider issue a new signing secret. The old one stays valid for 24 hours (spec, "Webhook endpoints").

    ``account``, ``idempotency_key``, ``actor`` and the errors are the same as in ``create_payment``.

    Args:
        endpoint: An instance or its id.

    Returns:
        The mirrored endpoint. This instance has the plain secret once, as ``endpoint.secret``.
    """
    return change(
        WebhookEndpoint, endpoint, name="endpoint", account=account, idempotency_key=idempotency_key, actor=actor
    )


@service(type(None))
def delete_webhook_endpoint(
    endpoint: WebhookEndpoint | str,
    *,
    account: str | None = None,
    idempotency_key: str | None = None,
    actor: object = None,
) -> Intent:
    """Delete an endpoint; its row stays, marked as deleted and without its secret (spec, "Webhook endpoints").

    ``account``, ``idempotency_key``, ``actor`` and further errors are the same as in ``create_payment``.

    Args:
        endpoint: An instance or its id.

    Raises:
        NotFound: The provider has no such endpoint.
    """
    return change(
        WebhookEndpoint, endpoint, name="endpoint", account=account, idempotency_key=idempotency_key, actor=actor
    )


def sync_webhook_endpoints(*, account: str = conf.DEFAULT_ACCOUNT) -> list[WebhookEndpoint]:
    """Read every endpoint of the account into the mirror (GET /webhook-endpoints).

    Args:
        account: An alias of ``ACCOUNTS``.

    Returns:
        One row per endpoint. Rows that are no longer listed are marked as gone.

    Raises:
        ProviderError: The provider refused the read.
        NoAnswer: The provider did not answer.
        TransactionRefused: The call is inside a transaction.
    """
    refuse_transaction("sync_webhook_endpoints")
    alias = conf.account(account).alias
    rows = sync.read_endpoints(alias)
    wakeup.wake(alias)
    return rows
