"""Register the provider's calls: one class per call, found by the name that ``Operation.operation`` stores.

To add a call of the provider, write its class, list it here, and write its service function.
"""

from payments_integration.outbox.operations.base import (
    CALLS as CALLS,
    MAX_SCANNED as MAX_SCANNED,
    NOT_FOUND as NOT_FOUND,
    Candidates as Candidates,
    Creation as Creation,
    Finding as Finding,
    Happened as Happened,
    Intent as Intent,
    Precondition as Precondition,
    PreconditionFailed as PreconditionFailed,
    ProviderCall as ProviderCall,
    Unclear as Unclear,
    asked_late as asked_late,
    creating as creating,
    get as get,
    of as of,
    reaches_approval_limit as reaches_approval_limit,
    register as register,
)
from payments_integration.outbox.operations.payments import CancelPayment, CreateDepositReference, CreatePayment
from payments_integration.outbox.operations.payouts import (
    CancelPayout,
    CreatePayout,
    is_same_bank_account as is_same_bank_account,
)
from payments_integration.outbox.operations.refunds import CreateRefund
from payments_integration.outbox.operations.webhook_endpoints import (
    CreateWebhookEndpoint,
    DeleteWebhookEndpoint,
    RotateWebhookSecret,
)

register(
    CreatePayment(),
    CancelPayment(),
    CreatePayout(),
    CancelPayout(),
    CreateRefund(),
    CreateDepositReference(),
    CreateWebhookEndpoint(),
    RotateWebhookSecret(),
    DeleteWebhookEndpoint(),
)
