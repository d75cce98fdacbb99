"""Speak the provider's HTTP interface, typed: exact bytes out, structs of ``schemas`` back. Imports no models."""

from payments_integration.client.answers import Answer, PageOf, RawEvent
from payments_integration.client.requestor import INTERACTIVE_WAIT, LatestAnswer, at_most, before_sending
from payments_integration.client.resources import Client, unguarded_client

__all__ = [
    "INTERACTIVE_WAIT",
    "Answer",
    "Client",
    "LatestAnswer",
    "PageOf",
    "RawEvent",
    "at_most",
    "before_sending",
    "unguarded_client",
]
