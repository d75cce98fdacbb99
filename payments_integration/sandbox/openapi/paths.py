"""The 21 operations and the webhooks ("Endpoints", "Events", "Webhook signature")."""

from __future__ import annotations

from typing import Any, Final

from . import examples
from .components import status_of, use
from .types import EVENT_TYPES, Json, const, headers, ref

_ALWAYS: Final = ("Unauthorized", "TooManyRequests", "InternalError", "ServiceUnavailable")


def _operation(
    operation_id: str, tag: str, summary: str, schema: str, example: Json, parameters: list[Json],
    *failures: str, status: int = 200, body: str | None = None, forbidden: str = "NotActive",
    links: Json | None = None, description: str = "",
) -> Json:  # fmt: skip
    named = sorted((*_ALWAYS, forbidden, *failures), key=status_of)
    return {
        "operationId": operation_id,
        "tags": [tag],
        "summary": summary,
        **({"description": description} if description else {}),
        "parameters": parameters,
        **({} if body is None else {"requestBody": _content(body, examples.REQUESTS[body], required=True)}),
        "responses": {
            str(status): {
                "description": f"{schema}. The HTTP status {status} is not shown by the provider.",
                "x-not-shown": True,
                "headers": headers(),
                **_content(schema, {"response": example}),
                **({} if links is None else {"links": links}),
            },
            **{str(status_of(name)): {"$ref": f"#/components/responses/{name}"} for name in named},
        },
    }


def _post(
    operation_id: str, tag: str, summary: str, schema: str, example: Json, parameters: list[Json],
    *failures: str, body: str | None = None, **more: Any,
) -> Json:  # fmt: skip
    """With a body it creates an object (201), without one it changes an object (200)."""
    return _operation(
        operation_id, tag, summary, schema, example, [*parameters, *use("IdempotencyKey")],
        "BadRequest", "Conflict", "BodyTooLarge", "NotJson", *failures,
        status=200 if body is None else 201, body=body, **more,
    )  # fmt: skip


def _content(schema: str, values: dict[str, Json], **more: object) -> Json:
    media = {"schema": ref(schema), "examples": {name: {"value": value} for name, value in values.items()}}
    return {**more, "content": {"application/json": media}}


def _links(parameter: str, *operations: str) -> Json:
    """The operations that the object in the response can be used with."""
    return {
        name: {"operationId": name, "parameters": {f"path.{parameter}": "$response.body#/id"}} for name in operations
    }


_PAGE: Final = ("Limit", "StartingAfter")
_PAYMENT, _PAYOUT, _REFUND = "Payments", "Payouts", "Refunds"
_DEPOSIT, _WEBHOOK, _EVENT = "Deposit references", "Webhook endpoints", "Events"

PATHS: Final[dict[str, Json]] = {
    "/payment-methods": {
        "get": _operation(
            "list_payment_methods", "Payment methods", "List payment methods", "PaymentMethodList",
            examples.listed(examples.PAYMENT_METHOD), use("Country", "Currency", "Amount"), "BadRequest",
        ),
    },
    "/payments": {
        "get": _operation(
            "list_payments", _PAYMENT, "List payments", "PaymentPage", examples.page(examples.PAYMENT),
            use(*_PAGE, "PaymentStatus", "MerchantReference", "CreatedFrom", "CreatedTo"), "BadRequest", "NotFound",
        ),
        "post": _post(
            "create_payment", _PAYMENT, "Create a payment", "Payment", examples.PAYMENT, [],
            "PaymentRefused", "ProviderUnavailable", body="CreatePayment", forbidden="NotAllowed",
            links={
                **_links("payment_id", "get_payment", "cancel_payment"),
                "list_refunds": {
                    "operationId": "list_refunds", "parameters": {"query.payment_id": "$response.body#/id"},
                },
            },
        ),
    },
    "/payments/{payment_id}": {
        "get": _operation(
            "get_payment", _PAYMENT, "Read a payment", "Payment", examples.SUCCEEDED, use("PaymentId"), "NotFound",
        ),
    },
    "/payments/{payment_id}/cancel": {
        "post": _post(
            "cancel_payment", _PAYMENT, "Cancel a payment", "Payment", examples.CANCELED, use("PaymentId"),
            "NotFound", "CancelRefused",
            description="Only while it is created or requires_action. There is no body.",
        ),
    },
    "/payouts": {
        "get": _operation(
            "list_payouts", _PAYOUT, "List payouts", "PayoutPage", examples.page(examples.PAYOUT),
            use(*_PAGE, "PayoutStatus", "MerchantReference"), "BadRequest", "NotFound",
        ),
        "post": _post(
            "create_payout", _PAYOUT, "Create a payout", "Payout", examples.PAYOUT, [],
            "PayoutRefused", "ProviderUnavailable", body="CreatePayout", forbidden="NotAllowed",
            links=_links("payout_id", "get_payout", "cancel_payout"),
            description="Amount plus fee is reserved from the available balance.",
        ),
    },
    "/payouts/{payout_id}": {
        "get": _operation(
            "get_payout", _PAYOUT, "Read a payout", "Payout", examples.PAYOUT, use("PayoutId"), "NotFound",
        ),
    },
    "/payouts/{payout_id}/cancel": {
        "post": _post(
            "cancel_payout", _PAYOUT, "Cancel a payout", "Payout", {**examples.PAYOUT, "status": "canceled"},
            use("PayoutId"), "NotFound", "CancelRefused",
            description="Only while it is created; the reserved money is available again. There is no body. The "
            "error for any other status is not shown by the provider.",
        ),
    },
    "/refunds": {
        "get": _operation(
            "list_refunds", _REFUND, "List refunds", "RefundPage", examples.page(examples.REFUND),
            use(*_PAGE, "OfPayment"), "BadRequest", "NotFound",
        ),
        "post": _post(
            "create_refund", _REFUND, "Create a refund", "Refund", examples.REFUND, [],
            "NotFound", "RefundRefused", "ProviderUnavailable", body="CreateRefund",
            links=_links("refund_id", "get_refund"),
            description="A card payment is refunded through the provider, any other as a payout to `destination`. The "
            "service's fee is not returned.",
        ),
    },
    "/refunds/{refund_id}": {
        "get": _operation(
            "get_refund", _REFUND, "Read a refund", "Refund", examples.REFUND, use("RefundId"), "NotFound",
        ),
    },
    "/deposit-references": {
        "post": _post(
            "create_deposit_reference", _DEPOSIT, "Create a deposit reference", "DepositReference",
            examples.DEPOSIT_REFERENCE, [], "DepositReferenceRefused", "ProviderUnavailable",
            body="CreateDepositReference", forbidden="NotAllowed",
            links=_links("deposit_reference_id", "get_deposit_reference"),
        ),
    },
    "/deposit-references/{deposit_reference_id}": {
        "get": _operation(
            "get_deposit_reference", _DEPOSIT, "Read a deposit reference", "DepositReference",
            examples.DEPOSIT_REFERENCE, use("DepositReferenceId"), "NotFound",
        ),
    },
    "/balances": {
        "get": _operation(
            "list_balances", "Balances", "Read the balances", "BalanceList", examples.listed(examples.BALANCE), [],
            "BadRequest",
        ),
    },
    "/webhook-endpoints": {
        "get": _operation(
            "list_webhook_endpoints", _WEBHOOK, "List webhook endpoints", "WebhookEndpointList",
            examples.listed(examples.ENDPOINT), [], "BadRequest",
        ),
        "post": _post(
            "create_webhook_endpoint", _WEBHOOK, "Create a webhook endpoint", "WebhookEndpointWithSecret",
            examples.ENDPOINT_WITH_SECRET, [], "TooManyEndpoints", body="CreateWebhookEndpoint",
            links=_links("endpoint_id", "rotate_webhook_secret", "delete_webhook_endpoint"),
            description="The response shows the signing secret once. Planned: at most 10 active endpoints.",
        ),
    },
    "/webhook-endpoints/{endpoint_id}": {
        "delete": _operation(
            "delete_webhook_endpoint", _WEBHOOK, "Delete a webhook endpoint", "DeletedWebhookEndpoint",
            {"id": examples.ENDPOINT["id"], "object": "webhook_endpoint", "deleted": True}, use("EndpointId"),
            "NotFound",
        ),
    },
    "/webhook-endpoints/{endpoint_id}/rotate-secret": {
        "post": _post(
            "rotate_webhook_secret", _WEBHOOK, "Rotate the signing secret", "WebhookEndpointWithSecret",
            examples.ENDPOINT_WITH_SECRET, use("EndpointId"), "NotFound",
            description="The old secret stays valid for 24 hours; deliveries carry two signatures in that time. "
            "There is no body.",
        ),
    },
    "/events": {
        "get": _operation(
            "list_events", _EVENT, "List events", "EventPage", examples.page(examples.event()),
            use(*_PAGE, "EventType", "CreatedFrom", "CreatedTo"), "BadRequest", "NotFound",
            description="Kept for 30 days. Use it to recover events that an endpoint missed.",
        ),
    },
    "/events/{event_id}": {
        "get": _operation(
            "get_event", _EVENT, "Read an event", "Event", examples.event(), use("EventId"), "NotFound",
            description="The response is not shown by the provider. The sandbox: the event itself.",
        ),
    },
}  # fmt: skip

_DATA_SCHEMAS: Final = {"payment": "Payment", "payout": "Payout", "refund": "Refund", "balance": "Balance"}

WEBHOOK_PARAMETERS: Final[dict[str, Json]] = {
    "ServiceSignature": {
        "name": "Service-Signature",
        "in": "header",
        "required": True,
        "description": "`t` is a Unix time; each `v1` is the hex HMAC-SHA256 of `<t>.<raw body>` with a secret of "
        "the endpoint. During a rotation there are two; accept if any matches. Reject if `t` is more than 5 minutes "
        "off.",
        "schema": {"type": "string", "pattern": "^t=[0-9]+(,v1=[0-9a-f]{64}){1,2}$"},
    }
}


def _schema_name(event_type: str) -> str:
    """The schema of an event type: PaymentRequiresActionEvent for ``payment.requires_action``."""
    return "".join(part.capitalize() for part in event_type.replace(".", "_").split("_")) + "Event"


# payout.delayed is not a status, so the type of an event does not restrict the status of its object.
EVENT_SCHEMAS: Final[dict[str, Json]] = {
    _schema_name(event_type): {
        "allOf": [
            ref("Event"),
            {"properties": {"type": const(event_type), "data": ref(_DATA_SCHEMAS[event_type.partition(".")[0]])}},
        ]
    }
    for event_type in EVENT_TYPES
}


def _webhook(event_type: str) -> Json:
    name = _schema_name(event_type)
    return {
        "post": {
            "operationId": f"receive_{event_type.replace('.', '_')}",
            "tags": ["Events"],
            "summary": event_type,
            "description": "Delivered at least once: drop duplicates by the event's id. The method POST and the type "
            "application/json are not shown by the provider; the sandbox uses them.",
            "x-not-shown": True,
            "security": [],
            "parameters": [{"$ref": "#/components/parameters/ServiceSignature"}],
            "requestBody": _content(name, {"event": examples.event(event_type)}, required=True),
            "responses": {
                "2XX": {"description": "Acknowledged, if it arrives within 10 seconds."},
                "default": {
                    "description": "Not acknowledged. Planned: sent again after 1 minute, 5 minutes, 30 minutes, 2 "
                    "hours, 6 hours, 12 hours, then every 24 hours for up to 3 days."
                },
            },
        }
    }


WEBHOOKS: Final[dict[str, Json]] = {event_type: _webhook(event_type) for event_type in EVENT_TYPES}
