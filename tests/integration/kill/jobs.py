"""What a child runs: each function is the work of one process of a site. Arguments and results are JSON."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from payments_integration import inbox, reconciliation, services, tasks
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.models import Operation
from payments_integration.reconciliation import forgetting
from tests.factories.receivers.models import ReceiverCall


def deliver(requests: list[tuple[str, str, str]]) -> list[int]:
    """A web process takes in deliveries: path, signature, body; returns the statuses of its answers."""
    client = Client()
    return [
        client.post(
            path,
            data=body.encode(),
            content_type="application/json",
            headers={"Service-Signature": header},
            secure=True,
        ).status_code
        for path, header, body in requests
    ]


def sweep() -> None:
    """What the schedule runs twice a minute."""
    tasks.process_events()


def dispatch() -> int:
    """The part of the schedule that calls receivers, after the part that applies events."""
    inbox.process()
    return inbox.dispatch()


def call(function: str, arguments: dict[str, Any]) -> str:
    """A caller of a service; returns the id of what was made, or "unknown"."""
    try:
        row = getattr(services, function)(**arguments)
    except OutcomeUnknown:
        return "unknown"
    return str(row.pk)


def calls(function: str, several: list[dict[str, Any]]) -> list[str]:
    return [call(function, arguments) for arguments in several]


def approve(order: str, function: str, arguments: dict[str, Any]) -> str:
    """A shop's own work and a deferred call in one transaction; returns the operation's state after it."""
    with transaction.atomic():
        ReceiverCall.objects.create(what="approved", object_id=order)
        operation = services.defer(getattr(services, function), **arguments)
    return str(Operation.objects.get(pk=operation.pk).state)


def give_approval(operation: str, user: int) -> str:
    """A second person approves what waits; returns the id of what was made."""
    return str(services.approve(operation, User.objects.get(pk=user)).pk)


def reconcile() -> dict[str, Any]:
    """A pass over the events; returns how it ended."""
    run = reconciliation.reconcile_events()
    return {"state": run.state, "error": run.error, "seen": run.seen, "pages": run.pages}


def forget(account: str) -> dict[str, int]:
    """A person deletes what an account has mirrored; returns how many rows of each table."""
    with mock.patch.object(forgetting, "TRUST", timedelta()):
        return reconciliation.forget_account(account)
