"""The provider's HTTP interface, typed: exact bytes out, structs of ``schemas`` back. It imports no models."""

from payments_integration.client.answers import Answer, PageOf, RawEvent, TooLarge
from payments_integration.client.deadlines import at_most, before_sending
from payments_integration.client.requestor import BACKGROUND_WAIT, INTERACTIVE_WAIT, LatestAnswer
from payments_integration.client.resources import Client, get_client

__all__ = [
    "BACKGROUND_WAIT",
    "INTERACTIVE_WAIT",
    "Answer",
    "Client",
    "LatestAnswer",
    "PageOf",
    "RawEvent",
    "TooLarge",
    "at_most",
    "before_sending",
    "get_client",
]
