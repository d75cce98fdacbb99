"""Webhook endpoints and their secrets (spec, "Webhook endpoints")."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration import projection, sync
from payments_integration.client import Answer, Client
from payments_integration.enums import Kind
from payments_integration.exceptions import NotFound, ProviderError
from payments_integration.models import Operation, OperationState, WebhookEndpoint
from payments_integration.outbox.operations.base import (
    Candidates,
    Change,
    Creation,
    Happened,
    Intent,
    ProviderCall,
    Unclear,
    sent_since,
)

#: Longer than a key may be sent again, by more than any clock was wrong.
_RIVAL_SPAN = timedelta(days=2)


class _AnswersWithSecret(ProviderCall):
    """The answer holds the signing secret, once. Another rotation replaces a secret that is lost."""

    kind = Kind.WEBHOOK_ENDPOINT
    answers_with_secret = True

    def after_answer(self, operation: Operation, answer: Any, *, earlier_may_have_run: bool) -> Intent | None:
        if not answer.secret:
            return self.after_finding(operation, answer.id) if earlier_may_have_run else None
        is_current = projection.store_secret(
            operation.account,
            answer.id,
            answer.secret,
            asked_at=operation.first_sent_at,
            in_doubt=earlier_may_have_run and _has_rival_secret(operation, answer.id),
        )
        return None if is_current else self.after_finding(operation, answer.id)

    def after_finding(self, operation: Operation, object_id: str) -> Intent | None:
        return _rotation(operation, object_id, f"{operation.pk}-again")


class CreateWebhookEndpoint(_AnswersWithSecret, Creation):
    name, label = "create_webhook_endpoint", _("new webhook endpoint")
    permission = "manage_webhookendpoint"

    def look_up(self, client: Client, operation: Operation) -> Candidates:
        listed = client.webhook_endpoints.list(max_wait=sync.WORKER_WAIT, background=True).data
        return Candidates([item for item in listed if self.fits(operation, item)])

    def look_up_in_mirror(self, operation: Operation) -> Candidates:
        rows = WebhookEndpoint.objects.filter(account=operation.account, deleted_at=None)
        return Candidates([row for row in rows if self.fits(operation, row)])

    def fits(self, operation: Operation, item: Any) -> bool:
        asked = operation.arguments
        return (
            item.url == asked.get("url")
            and sorted(item.events) == sorted(asked.get("events", []))
            and (item.created_at is None or item.created_at >= sent_since(operation))
        )


class RotateWebhookSecret(_AnswersWithSecret, Change):
    name, label = "rotate_webhook_secret", _("rotation of a webhook secret")
    target, permission = Kind.WEBHOOK_ENDPOINT, "rotate_webhookendpoint"

    def send(self, client: Client, operation: Operation, *, max_wait: float) -> Answer[Any]:
        return client.webhook_endpoints.rotate_secret(
            operation.target_id, idempotency_key=operation.idempotency_key, max_wait=max_wait
        )

    def look_up(self, client: Client, operation: Operation) -> Happened:
        return Happened("its answer is lost; the secret is rotated again")

    def after_late_attempt(self, operation: Operation) -> Intent | None:
        # Its secret may be newer than the secret that the other worker's rotation brought.
        return _rotation(operation, operation.target_id, f"{operation.pk}-late-{operation.attempts}")


class DeleteWebhookEndpoint(Change):
    name, label, kind = "delete_webhook_endpoint", _("deletion of a webhook endpoint"), Kind.WEBHOOK_ENDPOINT
    target, permission = Kind.WEBHOOK_ENDPOINT, "manage_webhookendpoint"
    repeat_is_harmless, leaves_object = True, False

    def send(self, client: Client, operation: Operation, *, max_wait: float) -> Answer[Any]:
        return client.webhook_endpoints.delete(operation.target_id, max_wait=max_wait)

    def contradicts(self, operation: Operation, answer: Any) -> str:
        return "" if answer is None else super().contradicts(operation, answer)

    def look_up(self, client: Client, operation: Operation) -> Happened | Unclear:
        listed = sync.read_endpoints(operation.account, background=True)
        if any(endpoint.pk == operation.target_id for endpoint in listed):
            return Unclear("the endpoint is still there")
        return Happened("the endpoint is gone")

    def refusal_shows_effect(self, error: ProviderError) -> bool:
        return isinstance(error, NotFound) or error.status_code == 404

    def after_answer(self, operation: Operation, answer: Any, *, earlier_may_have_run: bool) -> Intent | None:
        return self.after_finding(operation, operation.target_id)

    def after_finding(self, operation: Operation, object_id: str) -> Intent | None:
        projection.mark_endpoint_deleted(operation.account, object_id)
        return None


def _rotation(operation: Operation, endpoint_id: str, idempotency_key: str) -> Intent:
    return Intent(
        operation=RotateWebhookSecret.name,
        account=operation.account,
        arguments={"endpoint": endpoint_id},
        target_id=endpoint_id,
        idempotency_key=idempotency_key,
        actor=operation.actor,
        actor_id=operation.actor_id,
    )


def _has_rival_secret(operation: Operation, endpoint_id: str) -> bool:
    """Return True if another rotation brought a secret while the provider may have carried out this one.

    Both times are from our clock, which may have been set in between.
    """
    now = timezone.now()
    others = Operation.objects.filter(
        account=operation.account,
        operation=RotateWebhookSecret.name,
        state=OperationState.DONE,
        result_id=endpoint_id,
        closed_at__range=(now - _RIVAL_SPAN, now + _RIVAL_SPAN),
    )
    return others.exclude(pk=operation.pk).exists()
