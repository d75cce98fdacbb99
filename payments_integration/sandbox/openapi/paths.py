"""The 21 operations ("Endpoints")."""

from __future__ import annotations

from typing import Final

from . import examples
from .failures import status_of
from .parameters import headers, use
from .vocabulary import Json, ref

_ALWAYS: Final = ("Unauthorized", "TooManyRequests", "InternalError", "ServiceUnavailable")
_POST: Final = ("BadRequest", "Conflict", "BodyTooLarge", "NotJson")
_IDEMPOTENT: Final = "IdempotencyKey"


def _answer(status: int, schema: str, example: Json, links: Json | None) -> Json:
    return {
        str(status): {
            "description": f"{schema}. That it comes with {status} is not shown by the provider.",
            "x-not-shown": True,
            "headers": headers(),
            "content": {"application/json": {"schema": ref(schema), "examples": {"answer": {"value": example}}}},
            **({} if links is None else {"links": links}),
        }
    }


def _failures(names: tuple[str, ...]) -> Json:
    return {str(status_of(name)): {"$ref": f"#/components/responses/{name}"} for name in sorted(names, key=status_of)}


def _read(
    operation_id: str, tag: str, summary: str, schema: str, example: Json, parameters: list[Json],
    *failures: str, description: str = "",
) -> Json:  # fmt: skip
    return {
        "operationId": operation_id,
        "tags": [tag],
        "summary": summary,
        **({"description": description} if description else {}),
        "parameters": parameters,
        "responses": {
            **_answer(200, schema, example, None),
            **_failures((*_ALWAYS, "NotActive", *failures)),
        },
    }


def _write(
    operation_id: str, tag: str, summary: str, schema: str, example: Json, parameters: list[Json],
    *failures: str, body: str | None = None, forbidden: str = "NotActive", links: Json | None = None,
    description: str = "",
) -> Json:  # fmt: skip
    """A POST: with a body it creates and answers 201, without one it moves an object and answers 200."""
    content: Json = {} if body is None else {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": ref(body),
                    "examples": {name: {"value": value} for name, value in examples.REQUESTS[body].items()},
                }
            },
        }
    }  # fmt: skip
    return {
        "operationId": operation_id,
        "tags": [tag],
        "summary": summary,
        **({"description": description} if description else {}),
        "parameters": [*parameters, *use(_IDEMPOTENT)],
        **content,
        "responses": {
            **_answer(200 if body is None else 201, schema, example, links),
            **_failures((*_ALWAYS, *_POST, forbidden, *failures)),
        },
    }


def _links(parameter: str, *operations: str) -> Json:
    """What can be done next with the object in the answer."""
    return {
        name: {"operationId": name, "parameters": {f"path.{parameter}": "$response.body#/id"}} for name in operations
    }


_PAGE: Final = ("Limit", "StartingAfter")
_PAYMENT, _PAYOUT, _REFUND = "Payments", "Payouts", "Refunds"
_DEPOSIT, _WEBHOOK, _EVENT = "Deposit references", "Webhook endpoints", "Events"

PATHS: Final[dict[str, Json]] = {
    "/payment-methods": {
        "get": _read(
            "list_payment_methods", "Payment methods", "List payment methods", "PaymentMethodList",
            examples.listed(examples.PAYMENT_METHOD), use("Country", "Currency", "Amount"), "BadRequest",
        ),
    },
    "/payments": {
        "get": _read(
            "list_payments", _PAYMENT, "List payments", "PaymentPage", examples.page(examples.PAYMENT),
            use(*_PAGE, "PaymentStatus", "MerchantReference", "CreatedFrom", "CreatedTo"), "BadRequest", "NotFound",
        ),
        "post": _write(
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
        "get": _read(
            "get_payment", _PAYMENT, "Read a payment", "Payment", examples.SUCCEEDED, use("PaymentId"), "NotFound",
        ),
    },
    "/payments/{payment_id}/cancel": {
        "post": _write(
            "cancel_payment", _PAYMENT, "Cancel a payment", "Payment", examples.CANCELED, use("PaymentId"),
            "NotFound", "CancelRefused",
            description="Only while it is created or requires_action. There is no body.",
        ),
    },
    "/payouts": {
        "get": _read(
            "list_payouts", _PAYOUT, "List payouts", "PayoutPage", examples.page(examples.PAYOUT),
            use(*_PAGE, "PayoutStatus", "MerchantReference"), "BadRequest", "NotFound",
        ),
        "post": _write(
            "create_payout", _PAYOUT, "Create a payout", "Payout", examples.PAYOUT, [],
            "PayoutRefused", "ProviderUnavailable", body="CreatePayout", forbidden="NotAllowed",
            links=_links("payout_id", "get_payout", "cancel_payout"),
            description="Amount plus fee is reserved from the available balance.",
        ),
    },
    "/payouts/{payout_id}": {
        "get": _read(
            "get_payout", _PAYOUT, "Read a payout", "Payout", examples.PAYOUT, use("PayoutId"), "NotFound",
        ),
    },
    "/payouts/{payout_id}/cancel": {
        "post": _write(
            "cancel_payout", _PAYOUT, "Cancel a payout", "Payout", {**examples.PAYOUT, "status": "canceled"},
            use("PayoutId"), "NotFound", "CancelRefused",
            description="Only while it is created; what was reserved is available again. There is no body. The "
            "error for any other status is not shown by the provider.",
        ),
    },
    "/refunds": {
        "get": _read(
            "list_refunds", _REFUND, "List refunds", "RefundPage", examples.page(examples.REFUND),
            use(*_PAGE, "OfPayment"), "BadRequest", "NotFound",
        ),
        "post": _write(
            "create_refund", _REFUND, "Create a refund", "Refund", examples.REFUND, [],
            "NotFound", "RefundRefused", "ProviderUnavailable", body="CreateRefund",
            links=_links("refund_id", "get_refund"),
            description="Of a card payment through the provider; of any other as a payout to `destination`. The "
            "service's fee is not given back.",
        ),
    },
    "/refunds/{refund_id}": {
        "get": _read(
            "get_refund", _REFUND, "Read a refund", "Refund", examples.REFUND, use("RefundId"), "NotFound",
        ),
    },
    "/deposit-references": {
        "post": _write(
            "create_deposit_reference", _DEPOSIT, "Create a deposit reference", "DepositReference",
            examples.DEPOSIT_REFERENCE, [], "DepositReferenceRefused", "ProviderUnavailable",
            body="CreateDepositReference", forbidden="NotAllowed",
            links=_links("deposit_reference_id", "get_deposit_reference"),
        ),
    },
    "/deposit-references/{deposit_reference_id}": {
        "get": _read(
            "get_deposit_reference", _DEPOSIT, "Read a deposit reference", "DepositReference",
            examples.DEPOSIT_REFERENCE, use("DepositReferenceId"), "NotFound",
        ),
    },
    "/balances": {
        "get": _read(
            "list_balances", "Balances", "Read the balances", "BalanceList", examples.listed(examples.BALANCE), [],
            "BadRequest",
        ),
    },
    "/webhook-endpoints": {
        "get": _read(
            "list_webhook_endpoints", _WEBHOOK, "List webhook endpoints", "WebhookEndpointList",
            examples.listed(examples.ENDPOINT), [], "BadRequest",
        ),
        "post": _write(
            "create_webhook_endpoint", _WEBHOOK, "Create a webhook endpoint", "WebhookEndpointWithSecret",
            examples.ENDPOINT_WITH_SECRET, [], "TooManyEndpoints", body="CreateWebhookEndpoint",
            links=_links("endpoint_id", "rotate_webhook_secret", "delete_webhook_endpoint"),
            description="The answer shows the signing secret, this once. Planned: at most 10 active endpoints.",
        ),
    },
    "/webhook-endpoints/{endpoint_id}": {
        "delete": _read(
            "delete_webhook_endpoint", _WEBHOOK, "Delete a webhook endpoint", "DeletedWebhookEndpoint",
            {"id": examples.ENDPOINT["id"], "object": "webhook_endpoint", "deleted": True}, use("EndpointId"),
            "NotFound",
        ),
    },
    "/webhook-endpoints/{endpoint_id}/rotate-secret": {
        "post": _write(
            "rotate_webhook_secret", _WEBHOOK, "Rotate the signing secret", "WebhookEndpointWithSecret",
            examples.ENDPOINT_WITH_SECRET, use("EndpointId"), "NotFound",
            description="The old secret stays valid for 24 hours; deliveries carry two signatures in that time. "
            "There is no body.",
        ),
    },
    "/events": {
        "get": _read(
            "list_events", _EVENT, "List events", "EventPage", examples.page(examples.event()),
            use(*_PAGE, "EventType", "CreatedFrom", "CreatedTo"), "BadRequest", "NotFound",
            description="Kept for 30 days. Recovers what an endpoint missed.",
        ),
    },
    "/events/{event_id}": {
        "get": _read(
            "get_event", _EVENT, "Read an event", "Event", examples.event(), use("EventId"), "NotFound",
            description="What it answers with is not shown by the provider. The sandbox: the event itself.",
        ),
    },
}  # fmt: skip
