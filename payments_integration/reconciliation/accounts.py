"""Check an account: its balances, and if its webhook endpoints can deliver."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

from django.db import router

from payments_integration import conf, projection, site_urls, sync
from payments_integration.attention import call_attention
from payments_integration.db.transactions import repeatable
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import ReconciliationRun, RunKind, WebhookEndpoint
from payments_integration.reconciliation.runs import recorded
from payments_integration.services import sync_balances, sync_webhook_endpoints
from payments_integration.signals import Reason

#: An endpoint's problem that the provider does not know.
UNREADABLE = "no key can read its secret; deliveries that only it verifies get 503"


def check_endpoints(account: str = conf.DEFAULT_ACCOUNT) -> list[WebhookEndpoint]:
    """Read the endpoints, call ``attention`` for each with a new problem, and return them all."""
    sync_webhook_endpoints(account=account)
    rows = list(WebhookEndpoint.objects.filter(account=account, deleted_at=None))
    for row in rows:
        problem, reason = endpoint_problem(row), Reason.ENDPOINT
        if not problem and projection.has_unreadable_secret(row):
            problem, reason = UNREADABLE, Reason.SECRET_UNREADABLE
        if problem != row.reported_problem:
            repeatable(partial(_report, row, problem, reason), using=router.db_for_write(WebhookEndpoint))
    return rows


def _report(endpoint: WebhookEndpoint, problem: str, reason: Reason) -> None:
    is_first = WebhookEndpoint.objects.filter(pk=endpoint.pk).exclude(reported_problem=problem)
    if is_first.update(reported_problem=problem) and problem:
        call_attention(endpoint, reason, f"{endpoint.pk}: {problem}")


def endpoint_problem(endpoint: WebhookEndpoint) -> str:
    """Return why an endpoint delivers no events, or not all; "" if it delivers them all, or is another system's."""
    if is_elsewhere(endpoint):
        return ""
    if endpoint.gone_at is not None:
        return "the provider does not list this endpoint any more; create it again"
    if endpoint.status != WebhookEndpoint.Status.ACTIVE:
        return f"the endpoint is {endpoint.status} and receives no deliveries"
    missing = sorted(set(EVENT_TYPES) - set(endpoint.events))
    return f"the endpoint does not subscribe to {', '.join(missing)}" if missing else ""


def is_elsewhere(endpoint: WebhookEndpoint) -> bool:
    """Return True for another system's endpoint: the app has no secret of it, and no webhook view has its path.

    A project may have ten endpoints (spec, "Limits"). A proxy or a relay may change the path of this site's. So with
    WEBHOOK_SECRETS, every endpoint counts as this site's unless one of the others leads here.
    """
    if _leads_here(endpoint):
        return False
    account = conf.current().ACCOUNTS.get(endpoint.account)
    if account is None or not account.webhook_secrets:
        return True
    others = WebhookEndpoint.objects.filter(account=endpoint.account, deleted_at=None, gone_at=None)
    return any(map(_leads_here, others))


def _leads_here(endpoint: WebhookEndpoint) -> bool:
    if endpoint.secret_token:
        return True
    try:
        return site_urls.target(urlsplit(endpoint.url).path).account is not None
    except Exception:  # The URLconf is the project's code. Without it, the endpoint counts as this site's.
        return True


def reconcile_balances(account: str = conf.DEFAULT_ACCOUNT) -> ReconciliationRun:
    """Read the balances. Returns the record of the pass."""
    conf.account(account)
    with recorded(account, RunKind.BALANCES) as run:
        sync.require_same_project(account)
        run.seen = len(sync_balances(account=account))
    return run
