"""The one way in: events are stored (``receive``), applied in batches (``process``) and told (``tell``)."""

from typing import TYPE_CHECKING

from payments_integration import lazy

if TYPE_CHECKING:
    from payments_integration.inbox.processing import process
    from payments_integration.inbox.receiving import Receipt, receive, receive_many
    from payments_integration.inbox.telling import release, replay, tell
else:
    __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            "processing": ("process",),
            "receiving": ("Receipt", "receive", "receive_many"),
            "telling": ("release", "replay", "tell"),
        },
    )

__all__ = ["Receipt", "process", "receive", "receive_many", "release", "replay", "tell"]
