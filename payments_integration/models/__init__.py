"""The local mirror, the inbox, the ledger and the record of reconciliation."""

from payments_integration.models.erasures import Erasure
from payments_integration.models.history import (
    BalanceChange,
    DueRefresh,
    Event,
    EventSource,
    EventState,
    StatusChange,
    Telling,
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
)
from payments_integration.models.operations import OPEN_OPERATION_STATES, Operation, OperationState
from payments_integration.models.runs import AccountState, ReconciliationRun, RunKind, RunState

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
    "Telling",
    "WebhookEndpoint",
]
