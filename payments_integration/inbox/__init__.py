"""Let events in: store them (``receive``), apply them in batches (``process``) and dispatch them (``dispatch``)."""

from typing import TYPE_CHECKING

from payments_integration.runtime import lazy

if TYPE_CHECKING:
    from payments_integration.inbox.claiming import UNDISPATCHED as UNDISPATCHED
    from payments_integration.inbox.dispatching import dispatch as dispatch
    from payments_integration.inbox.finding import undispatched as undispatched
    from payments_integration.inbox.processing import process as process, unapplied as unapplied
    from payments_integration.inbox.receiving import (
        QUARANTINE_PREFIX as QUARANTINE_PREFIX,
        Receipt as Receipt,
        receive as receive,
        receive_many as receive_many,
        receive_unread as receive_unread,
    )
    from payments_integration.inbox.releasing import (
        LONGEST_HOLD as LONGEST_HOLD,
        dispatch_history as dispatch_history,
        release as release,
        release_overdue as release_overdue,
        replay as replay,
    )
else:
    __getattr__, __dir__, __all__ = lazy.exports(__name__)
