"""The one way in: events are stored (``receive``), applied in batches (``process``) and told (``tell``)."""

from payments_integration.inbox.processing import process
from payments_integration.inbox.receiving import Receipt, receive, receive_many
from payments_integration.inbox.telling import release, replay, tell

__all__ = ["Receipt", "process", "receive", "receive_many", "release", "replay", "tell"]
