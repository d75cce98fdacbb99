"""Permanent references that payers transfer to (spec, "Deposit references")."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import services
from payments_integration.api.bodies import DepositReferenceGiven
from payments_integration.api.calls import Call
from payments_integration.api.filters import DepositReferenceFilters
from payments_integration.api.representations import DepositReferenceSerializer
from payments_integration.api.views.base import DetailView, ListView, SendingView
from payments_integration.models import DepositReference


class DepositReferencesView(ListView, SendingView):
    model, filters, tag = DepositReference, DepositReferenceFilters, "deposit references"
    unread = ("extra",)
    made_at = "api-deposit-reference-detail"
    calls = {
        "GET": Call(
            id="list_deposit_references",
            summary="List deposit references",
            needs="view_depositreference",
            customers=True,
            gives=DepositReferenceSerializer,
            many=True,
        ),
        "POST": Call(
            id="create_deposit_reference",
            summary="Make a deposit reference",
            description="A payer can transfer to it again and again; transfers create payments by themselves.",
            needs="add_depositreference",
            customers=True,
            takes=DepositReferenceGiven,
            gives=DepositReferenceSerializer,
            status=201,
        ),
    }

    def post(self, request: Request) -> Response:
        return self.send(services.create_deposit_reference, **self.body())


class DepositReferenceView(DetailView):
    model, tag = DepositReference, "deposit references"
    calls = {
        "GET": Call(
            id="get_deposit_reference",
            summary="Show a deposit reference",
            needs="view_depositreference",
            customers=True,
            gives=DepositReferenceSerializer,
        ),
    }
