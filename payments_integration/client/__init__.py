"""The provider's HTTP interface, typed: bytes out, wire structs back. It knows no models."""

from payments_integration.client.answers import Answer, PageOf, RawEvent
from payments_integration.client.deadline import at_most
from payments_integration.client.provider import Client, get_client

__all__ = ["Answer", "Client", "PageOf", "RawEvent", "at_most", "get_client"]
