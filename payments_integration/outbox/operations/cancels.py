"""What the cancels have in common."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from django.utils.translation import gettext as _

from payments_integration import sync
from payments_integration.client import Answer, Client
from payments_integration.exceptions import NotFound
from payments_integration.models import Operation
from payments_integration.outbox.operations.base import (
    Change,
    Finding,
    Happened,
    Intent,
    Precondition,
    PreconditionFailed,
    Unclear,
)


class Cancel(Change):
    """A cancel. The target's status shows if it took effect."""

    cancelable: ClassVar[Collection[str]]

    def send(self, client: Client, operation: Operation, *, max_wait: float) -> Answer[Any]:
        sent: Answer[Any] = client.of(self.kind).cancel(
            operation.target_id, idempotency_key=operation.idempotency_key, max_wait=max_wait
        )
        return sent

    def precondition(self, intent: Intent) -> Precondition | None:
        if intent.target is None or self.target is None:
            return None
        return StatusIs(self.target.value, intent.target, self.cancelable)

    def find_forgotten(self, client: Client, operation: Operation) -> Finding:
        return self.look_up(client, operation)

    def look_up(self, client: Client, operation: Operation) -> Finding:
        try:
            row = sync.read(self.kind, operation.account, operation.target_id, background=True)
        except NotFound:
            return Unclear("the provider does not know the object any more")
        if self.is_in_effect(row):
            return Happened("found canceled by looking it up")
        return Unclear(f"the object is {row.status}")

    def is_in_effect(self, row: Any) -> bool:
        return bool(row.status == row.Status.CANCELED)


@dataclass(slots=True)
class StatusIs(Precondition):
    """The target has one of these statuses, as far as the mirror knows."""

    #: The argument that an error names.
    argument: str
    row: Any
    statuses: Collection[str]

    def decide(self, intent: Intent) -> Intent:
        if self.row.status not in self.statuses:
            message = _("It is %(status)s and cannot be canceled.")
            status = dict(self.row.Status.choices).get(self.row.status, self.row.status)
            raise PreconditionFailed({self.argument: [message % {"status": status}]})
        return intent

    def refresh(self) -> None:
        self.row = sync.read(self.row.kind, self.row.account, self.row.object_id)
