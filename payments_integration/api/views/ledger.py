"""What happened: the provider's events, and what was asked of the provider. Read only."""

from __future__ import annotations

from payments_integration.api.calls import Call
from payments_integration.api.filters import EventFilters, OperationFilters
from payments_integration.api.representations import EventSerializer, OperationSerializer
from payments_integration.api.views.base import DetailView, ListView
from payments_integration.models import Event, Operation

#: What no answer shows; bodies and tracebacks are large, and the rest is nobody's business.
_UNREAD = ("arguments", "body", "note", "request_ids")


class EventsView(ListView):
    model, filters, tag = Event, EventFilters, "events"
    unread = ("error",)
    calls = {
        "GET": Call(id="list_events", summary="List events", needs="view_event", gives=EventSerializer, many=True)
    }


class EventView(DetailView):
    model, tag = Event, "events"
    calls = {"GET": Call(id="get_event", summary="Show an event", needs="view_event", gives=EventSerializer)}


class OperationsView(ListView):
    model, filters, tag = Operation, OperationFilters, "operations"
    unread = _UNREAD
    calls = {
        "GET": Call(
            id="list_operations",
            summary="List operations",
            needs="view_operation",
            gives=OperationSerializer,
            many=True,
        )
    }


class OperationView(DetailView):
    model, tag = Operation, "operations"
    unread = _UNREAD
    calls = {
        "GET": Call(
            id="get_operation",
            summary="Show an operation",
            description="Where an answer 202 leads to. Customers may see those that they have asked for.",
            needs="view_operation",
            customers=True,
            gives=OperationSerializer,
        )
    }
