"""Let a person decide about an operation: approve or reject it, or settle an open one.

Each call is one function of ``services``, which checks the permission and the state again under its locks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import permissions, services
from payments_integration.api.errors import Problem, refused
from payments_integration.api.request_bodies import DECISIONS, ApproveInput, DecideInput, RejectInput
from payments_integration.api.schema import Route
from payments_integration.api.serializers import OperationSerializer
from payments_integration.api.views.sending import SendingView
from payments_integration.exceptions import OutcomeUnknown
from payments_integration.models import Operation


class _DecisionView(SendingView):
    queryset, serializer_class = Operation.objects.all(), OperationSerializer

    def operation(self) -> Operation:
        found: Operation = self.find(self.get_queryset(), self.kwargs["id"])
        return found

    def decide(self, operation: Operation, function: Callable[..., Any], *arguments: Any, **named: Any) -> Response:
        """Call the service and return the operation as it is then; a 202 while its outcome is unknown."""
        try:
            function(operation.pk, *arguments, **named)
        except OutcomeUnknown as error:
            return self._accepted(error.operation)
        except ValidationError as error:
            self._refuse(error)
            raise
        return self._shown(operation)

    def _shown(self, operation: Operation) -> Response:
        operation.refresh_from_db()
        return Response(self.get_serializer(operation).data)

    def _refuse(self, error: ValidationError) -> None:
        """Raise Problem for an error that is not about the body: the person (403) or the operation's state (422)."""
        named = getattr(error, "error_dict", {})
        if "actor" in named:
            raise refused(" ".join(error.messages)) from error
        if "operation" in named:
            raise Problem(422, "invalid_state", " ".join(error.messages)) from error


class ApproveView(_DecisionView):
    routes = {
        "POST": Route(
            "approve_operation",
            "approve_operation",
            description="Send an operation that waits for another person than the one who asked for it. The person "
            "who approved it gets the same answer again.",
            body=ApproveInput,
            changes_operation=True,
        )
    }

    def post(self, request: Request, id: str) -> Response:
        body, operation = self.body(), self.operation()
        try:
            return self.decide(
                operation, services.approve, request.user, body.get("comment") or "", digest=body.get("digest")
            )
        except Problem:
            operation.refresh_from_db()
            if not operation.approved_by.startswith(f"{request.user.pk}:"):
                raise
            # The answer to their approval was lost, or they pressed twice.
            self.is_replay = True
            return self._shown(operation)


class RejectView(_DecisionView):
    routes = {
        "POST": Route(
            "reject_operation",
            "view_operation",
            description="Close an operation that waits for approval: with `payments_integration.approve_operation`, "
            "or by the person who asked for it.",
            body=RejectInput,
            changes_operation=True,
        )
    }

    def post(self, request: Request, id: str) -> Response:
        body = self.body()
        return self.decide(self.operation(), services.reject, request.user, body["comment"])


class DecideView(_DecisionView):
    routes = {
        "POST": Route(
            "decide_operation",
            "view_operation",
            description="Settle an operation whose outcome is open. `look_up`, `retry` and `mark_happened` need "
            "`payments_integration.change_operation`; `mark_never_happened` and `mark_others` need "
            "`payments_integration.close_operation`. The operation's `actions` says which are possible now.",
            body=DecideInput,
            changes_operation=True,
        )
    }

    def post(self, request: Request, id: str) -> Response:
        body = self.body()
        DecideInput(data=request.data).is_valid(raise_exception=True)
        name, operation = str(body["decision"]), self.operation()
        # The services check the permission only for staff.
        permissions.require(request.user, DECISIONS[name], operation)
        settle, user, comment = getattr(services, name), request.user, body.get("comment") or ""
        if name in ("look_up", "retry"):
            return self.decide(operation, settle, user)
        if name == "mark_happened":
            return self.decide(operation, settle, body.get("object_id"), user, comment)
        if name == "mark_others":
            return self.decide(operation, settle, body.get("object_ids") or [], user, comment)
        return self.decide(operation, settle, user, comment)
