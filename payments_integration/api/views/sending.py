"""Call a service for a POST: once per key, with the same answer each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.translation import gettext as _
from rest_framework.exceptions import NotAuthenticated
from rest_framework.response import Response

from payments_integration import conf, permissions, services
from payments_integration.api import accounts, errors
from payments_integration.api.serializers import OperationSerializer
from payments_integration.api.views.base import ApiView
from payments_integration.exceptions import ApprovalRequired, IdempotencyMismatch, OutcomeUnknown
from payments_integration.models import Operation
from payments_integration.runtime.logs import get_logger
from payments_integration.validation.attempt_key import API_PREFIX

logger = get_logger(__name__)

KEY_HEADER = "Idempotency-Key"
#: Spec, "Limits".
MAX_KEY = 255


class SendingView(ApiView):
    """A path whose POST changes something at the provider."""

    def body(self) -> dict[str, Any]:
        """Return the parameters in the body. Raises Problem for an unknown one, and for a missing or wrong key."""
        if not self.routes["POST"].changes_operation:
            self.key()
        body = dict(self.request.data)
        self.sent = frozenset(name for name, value in body.items() if value is not None)
        serializer = self.routes["POST"].body
        known = serializer().fields if serializer is not None else {}
        if unknown := [name for name in body if name not in known]:
            words = _("There is no such parameter; known: %(known)s.") % {"known": ", ".join(known) or "-"}
            raise errors.wrong([errors.WrongField(name, "parameter_invalid", words) for name in unknown])
        if "account" in known:
            accounts.require(self.request.user, body.get("account"))
        if body.get("account") is None:
            body.pop("account", None)
        for name, value in body.items():
            if value is None and not known[name].required and not known[name].allow_null:
                raise errors.missing(name, str(known[name].error_messages["null"]))
        # The service reports missing parameters together with wrong ones.
        return {**{name: None for name, field in known.items() if field.required}, **body}

    def key(self) -> str:
        """Return the caller's key as the outbox stores it. Equal keys of two users are different keys."""
        key = self.request.headers.get(KEY_HEADER)
        if not key:
            raise errors.missing(KEY_HEADER, _("Every POST needs the header Idempotency-Key."))
        if len(key) > MAX_KEY:
            raise errors.invalid(KEY_HEADER, _("This must have at most %(max)d characters.") % {"max": MAX_KEY})
        owner = permissions.user_id(self.request.user)
        if not owner:
            # A project may admit anonymous callers, but a key needs an owner.
            raise NotAuthenticated
        return f"{API_PREFIX}{services.scoped_key(key, owner)}"

    def send(self, function: Callable[..., Any], *target: Any, **arguments: Any) -> Response:
        """Call a service and return its result. A repeated call with the same key gets the same answer."""
        route = self.routes["POST"]
        own_key = self.key()
        arguments = {"idempotency_key": own_key, **arguments}
        account = arguments.get("account") or (target[0].account if target else conf.DEFAULT_ACCOUNT)
        known = Operation.objects.filter(idempotency_key=arguments["idempotency_key"])
        # After a temporary refusal, this call sends the request.
        used = [operation for operation in known if not operation.has_free_key]
        self.is_replay = any(operation.account == account for operation in used)
        # Keys are unique per account: sent again with another account, the request would run twice. Two brands may
        # give their orders equal keys of the project's own, but not equal references that the same person pays.
        who, what = permissions.user_id(self.request.user), arguments.get("merchant_reference")
        try:
            for operation in used:
                is_same = what and (operation.actor_id, operation.merchant_reference) == (who, what)
                if operation.account != account and (arguments["idempotency_key"] == own_key or is_same):
                    raise IdempotencyMismatch("the caller used this key in another account; nothing was sent")
            row = function(*target, actor=self.request.user, **arguments)
        except (OutcomeUnknown, ApprovalRequired) as error:
            return self._accepted(error.operation)
        except IdempotencyMismatch as error:
            if arguments["idempotency_key"] == own_key:
                raise
            # The key is the project's, so another key of the caller's would change nothing.
            words = _(
                "This was asked for with other details before. Nothing was done. If that payment is open, cancel it "
                "first."
            )
            raise errors.Problem(409, "idempotency_conflict", words) from error
        extra = {"account": row.account, "api_request_id": self.request_id}
        logger.info("API request %s, %s: %s", self.request_id, route.id, row.pk, extra=extra)
        headers = self._location(row.kind, row.pk) if route.status == 201 else {}
        return Response(self.get_serializer(self._as_seen(row)).data, status=route.status, headers=headers)

    def _as_seen(self, row: Model) -> Any:
        """Return the row as the caller may read it; if they may not, ``row`` itself, the result of their own call."""
        return self.rows(type(row)._default_manager.all()).filter(pk=row.pk).first() or row

    def _accepted(self, operation: Any) -> Response:
        """Return a 202: the call is recorded, but it waits for a second person or its outcome is unknown."""
        extra = {"account": operation.account, "operation_id": operation.pk, "api_request_id": self.request_id}
        outcome = f"{operation.pk} is {operation.state}"
        logger.info("API request %s, %s: %s", self.request_id, self.route_id, outcome, extra=extra)
        shown = OperationSerializer(operation, context=self.get_serializer_context()).data
        return Response(shown, status=202, headers=self._location("operation", operation.pk))

    def _location(self, kind: str, pk: str) -> dict[str, str]:
        match = self.request.resolver_match
        namespace = f"{match.namespace}:" if match is not None and match.namespace else ""
        return {"Location": reverse(f"{namespace}api-{kind.replace('_', '-')}-detail", args=[pk])}
