"""Whether deliveries still come: endpoints that were disabled, deleted, or subscribe to too little."""

from __future__ import annotations

from payments_integration import conf
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import WebhookEndpoint
from payments_integration.reasons import Reason
from payments_integration.services import sync_webhook_endpoints
from payments_integration.signals import call_attention


def check_endpoints(account: str = conf.DEFAULT_ACCOUNT) -> list[WebhookEndpoint]:
    """Read the endpoints and call attention where one got worse since the last look; returns all that are ours."""
    before = {row.pk: complaint(row) for row in _known(account)}
    sync_webhook_endpoints(account=account)
    rows = list(_known(account))
    for row in rows:
        found = complaint(row)
        if found and found != before.get(row.pk, ""):
            call_attention(
                WebhookEndpoint, Reason.ENDPOINT, account=account, message=f"{row.pk}: {found}", instance=row
            )
    return rows


def _known(account: str) -> list[WebhookEndpoint]:
    return list(WebhookEndpoint.objects.filter(account=account, deleted_at=None))


def complaint(endpoint: WebhookEndpoint) -> str:
    """What keeps deliveries from coming, or some of them; "" where nothing does."""
    if endpoint.gone_at is not None:
        return "the provider does not list this endpoint any more; create it anew"
    if endpoint.status != WebhookEndpoint.Status.ACTIVE:
        return f"the endpoint is {endpoint.status}; deliveries do not come"
    missing = sorted(set(EVENT_TYPES) - set(endpoint.events))
    return f"the endpoint does not subscribe to {', '.join(missing)}" if missing else ""
