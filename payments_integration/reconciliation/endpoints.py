"""Whether deliveries still come: endpoints that were disabled, deleted, or subscribe to too little."""

from __future__ import annotations

from payments_integration import conf
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import WebhookEndpoint
from payments_integration.services import sync_webhook_endpoints
from payments_integration.signals import call_attention


def check_endpoints(account: str = conf.DEFAULT_ACCOUNT) -> list[WebhookEndpoint]:
    """Read the endpoints and call attention where one got worse since the last look; returns all that are ours."""
    before = {row.pk: _complaint(row) for row in _known(account)}
    sync_webhook_endpoints(account=account)
    rows = list(_known(account))
    for row in rows:
        complaint = _complaint(row)
        if complaint and complaint != before.get(row.pk, ""):
            call_attention(
                WebhookEndpoint, "endpoint", account=account, message=f"{row.pk}: {complaint}", instance=row
            )
    return rows


def _known(account: str) -> list[WebhookEndpoint]:
    return list(WebhookEndpoint.objects.filter(account=account, deleted_at=None))


def _complaint(endpoint: WebhookEndpoint) -> str:
    if endpoint.gone_at is not None:
        return "the provider does not list this endpoint any more; create it anew"
    if endpoint.status != WebhookEndpoint.Status.ACTIVE:
        return f"the endpoint is {endpoint.status}; deliveries do not come"
    missing = sorted(set(EVENT_TYPES) - set(endpoint.events))
    return f"the endpoint does not subscribe to {', '.join(missing)}" if missing else ""
