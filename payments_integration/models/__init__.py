"""The models: the local mirror, the inbox, the ledger and the state of reconciliation."""

from payments_integration.models.base import (
    ObjectKey as ObjectKey,
    Shape as Shape,
    keys_of as keys_of,
    of_objects as of_objects,
    shape_of as shape_of,
)
from payments_integration.models.deletion import deletion_allowed as deletion_allowed
from payments_integration.models.erasure import Erasure as Erasure
from payments_integration.models.events import (
    Event as Event,
    EventSource as EventSource,
    EventState as EventState,
    Grouping as Grouping,
    ObjectDispatch as ObjectDispatch,
    StatusChange as StatusChange,
)
from payments_integration.models.mirrors import (
    EMPTY_VALUES as EMPTY_VALUES,
    MIRRORS as MIRRORS,
    Balance as Balance,
    DepositReference as DepositReference,
    Mirror as Mirror,
    Payment as Payment,
    Payout as Payout,
    Refund as Refund,
    RefundFigures as RefundFigures,
    StateBy as StateBy,
    WebhookEndpoint as WebhookEndpoint,
    open_refund_operations as open_refund_operations,
    payer_document as payer_document,
    payer_email as payer_email,
    promised_refunds as promised_refunds,
    refundable_rest as refundable_rest,
    refunded_so_far as refunded_so_far,
    refunds_and_promises as refunds_and_promises,
    rest_after as rest_after,
    sent_refund_operations as sent_refund_operations,
)
from payments_integration.models.operations import (
    OPEN_OPERATION_STATES as OPEN_OPERATION_STATES,
    OPERATION_PREFIX as OPERATION_PREFIX,
    Operation as Operation,
    OperationState as OperationState,
    operation_states as operation_states,
    unknown_operations as unknown_operations,
)
from payments_integration.models.reconciliation import (
    AccountState as AccountState,
    DoublePayment as DoublePayment,
    DueAttention as DueAttention,
    DueRefresh as DueRefresh,
    ReconciliationRun as ReconciliationRun,
    RefreshReason as RefreshReason,
    RunKind as RunKind,
    RunState as RunState,
)
