"""The only way to change something at the provider.

Every call that changes something is recorded before it is sent, carries one idempotency key, and is finished even
after a crash: see ``docs/operations.md``. Every exception except OutcomeUnknown, and ApprovalRequired where limits
are set, means that the call was not executed and will not be sent later. Staff need the permission for a call
(PermissionDenied).

``operations`` is the registry of the provider's calls: what each is called, which object it changes, which permission
it needs. A name with an ``a`` before it, such as ``acreate_payment``, is the same call for async views.
"""

from typing import TYPE_CHECKING

from payments_integration.runtime import lazy

if TYPE_CHECKING:
    from payments_integration.outbox import (
        PreconditionFailed as PreconditionFailed,
        SecondLook as SecondLook,
        approve as approve,
        due_operations as due_operations,
        fitting_objects as fitting_objects,
        is_requester as is_requester,
        look_up as look_up,
        mark_happened as mark_happened,
        mark_never_happened as mark_never_happened,
        mark_others as mark_others,
        operations as operations,
        possible_resolutions as possible_resolutions,
        reject as reject,
        resume_operations as resume_operations,
        retry as retry,
    )
    from payments_integration.services.asynchronous import (
        acancel_payment as acancel_payment,
        acancel_payout as acancel_payout,
        acreate_deposit_reference as acreate_deposit_reference,
        acreate_payment as acreate_payment,
        acreate_payout as acreate_payout,
        acreate_refund as acreate_refund,
        alist_payment_methods as alist_payment_methods,
        apayout_cover as apayout_cover,
        arefresh as arefresh,
        arefundable as arefundable,
    )
    from payments_integration.services.deposit_references import create_deposit_reference as create_deposit_reference
    from payments_integration.services.payments import (
        cancel_payment as cancel_payment,
        create_payment as create_payment,
    )
    from payments_integration.services.payouts import cancel_payout as cancel_payout, create_payout as create_payout
    from payments_integration.services.reads import (
        list_payment_methods as list_payment_methods,
        payout_cover as payout_cover,
        refresh as refresh,
        sync_balances as sync_balances,
    )
    from payments_integration.services.refunds import create_refund as create_refund, refundable as refundable
    from payments_integration.services.service import defer as defer, scoped_key as scoped_key
    from payments_integration.services.webhook_endpoints import (
        create_webhook_endpoint as create_webhook_endpoint,
        delete_webhook_endpoint as delete_webhook_endpoint,
        rotate_webhook_secret as rotate_webhook_secret,
        sync_webhook_endpoints as sync_webhook_endpoints,
    )
else:
    __getattr__, __dir__, __all__ = lazy.exports(__name__)
