"""The models: the local mirror, the inbox, the ledger and the state of reconciliation."""

from payments_integration.models.base import ObjectKey
from payments_integration.models.erasure import Erasure
from payments_integration.models.events import (
    BalanceChange,
    Event,
    EventSource,
    EventState,
    ObjectDispatch,
    StatusChange,
)
from payments_integration.models.mirrors import (
    EMPTY_VALUES,
    MIRRORS,
    Balance,
    DepositReference,
    Mirror,
    Payment,
    Payout,
    Refund,
    StateBy,
    WebhookEndpoint,
    open_refund_operations,
    payer_document,
    payer_email,
    refundable_rest,
    reported_refunded,
    rest_after,
)
from payments_integration.models.operations import OPEN_OPERATION_STATES, Operation, OperationState
from payments_integration.models.reconciliation import (
    AccountState,
    DueRefresh,
    ReconciliationRun,
    RunKind,
    RunState,
)

__all__ = [
    "EMPTY_VALUES",
    "MIRRORS",
    "OPEN_OPERATION_STATES",
    "AccountState",
    "Balance",
    "BalanceChange",
    "DepositReference",
    "DueRefresh",
    "Erasure",
    "Event",
    "EventSource",
    "EventState",
    "Mirror",
    "ObjectDispatch",
    "ObjectKey",
    "Operation",
    "OperationState",
    "Payment",
    "Payout",
    "ReconciliationRun",
    "Refund",
    "RunKind",
    "RunState",
    "StateBy",
    "StatusChange",
    "WebhookEndpoint",
    "open_refund_operations",
    "payer_document",
    "payer_email",
    "refundable_rest",
    "reported_refunded",
    "rest_after",
]
