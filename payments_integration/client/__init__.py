"""Speak the provider's HTTP interface, typed: exact bytes out, structs of ``schemas`` back. Imports no models."""

from payments_integration.client.answers import Answer as Answer, PageOf as PageOf, RawEvent as RawEvent
from payments_integration.client.requestor import (
    INTERACTIVE_WAIT as INTERACTIVE_WAIT,
    LatestAnswer as LatestAnswer,
    at_most as at_most,
    before_sending as before_sending,
)
from payments_integration.client.resources import Client as Client, unguarded_client as unguarded_client
