"""Checks of an account: whether its webhook endpoints can deliver, and its balances."""

from __future__ import annotations

from payments_integration import conf
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import ReconciliationRun, RunKind, WebhookEndpoint
from payments_integration.reasons import Reason
from payments_integration.reconciliation.runs import recorded
from payments_integration.services import sync_balances, sync_webhook_endpoints
from payments_integration.signals import call_attention


def check_endpoints(account: str = conf.DEFAULT_ACCOUNT) -> list[WebhookEndpoint]:
    """Read the endpoints, send ``attention`` for each that got worse since the last check, and return them all."""
    before = {row.pk: endpoint_problem(row) for row in _known(account)}
    sync_webhook_endpoints(account=account)
    rows = list(_known(account))
    for row in rows:
        problem = endpoint_problem(row)
        if problem and problem != before.get(row.pk, ""):
            call_attention(
                WebhookEndpoint, Reason.ENDPOINT, account=account, message=f"{row.pk}: {problem}", instance=row
            )
    return rows


def _known(account: str) -> list[WebhookEndpoint]:
    return list(WebhookEndpoint.objects.filter(account=account, deleted_at=None))


def endpoint_problem(endpoint: WebhookEndpoint) -> str:
    """Why an endpoint delivers no events, or not all of them; "" if it delivers them all."""
    if endpoint.gone_at is not None:
        return "the provider does not list this endpoint any more; create it again"
    if endpoint.status != WebhookEndpoint.Status.ACTIVE:
        return f"the endpoint is {endpoint.status} and receives no deliveries"
    missing = sorted(set(EVENT_TYPES) - set(endpoint.events))
    return f"the endpoint does not subscribe to {', '.join(missing)}" if missing else ""


def reconcile_balances(account: str = conf.DEFAULT_ACCOUNT) -> ReconciliationRun:
    """Read the balances; returns the record of the pass."""
    conf.account(account)
    with recorded(account, RunKind.BALANCES) as run:
        run.seen = len(sync_balances(account=account))
    return run
