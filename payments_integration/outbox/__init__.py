"""Make calls to the provider that survive a crash.

An intent is recorded as an Operation and committed before its request leaves. If the answer is lost, the operation is
sent again under the same key or looked up, until its outcome is known or a person decides (docs/operations.md). Only
``services`` imports this package, by the names below.
"""

from typing import TYPE_CHECKING

from payments_integration.runtime import lazy

if TYPE_CHECKING:
    from payments_integration.outbox import operations as operations
    from payments_integration.outbox.approvals import (
        approve as approve,
        is_requester as is_requester,
        reject as reject,
    )
    from payments_integration.outbox.ledger import (
        CommitCheck as CommitCheck,
        unknown_if_committed as unknown_if_committed,
    )
    from payments_integration.outbox.operations import Intent as Intent, PreconditionFailed as PreconditionFailed
    from payments_integration.outbox.recovery import (
        bring_up_to_date as bring_up_to_date,
        due_operations as due_operations,
        resume_operations as resume_operations,
    )
    from payments_integration.outbox.resolution import (
        fitting_objects as fitting_objects,
        look_up as look_up,
        mark_happened as mark_happened,
        mark_never_happened as mark_never_happened,
        mark_others as mark_others,
        possible_resolutions as possible_resolutions,
        retry as retry,
    )
    from payments_integration.outbox.second_look import SecondLook as SecondLook
    from payments_integration.outbox.submission import submit as submit, submit_later as submit_later
else:
    __getattr__, __dir__, __all__ = lazy.exports(__name__)
