"""Money given back (spec, "Refunds")."""

from __future__ import annotations

from django.views.decorators.debug import sensitive_variables
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import services
from payments_integration.api.bodies import RefundGiven
from payments_integration.api.calls import Call
from payments_integration.api.errors import Given, missing
from payments_integration.api.filters import RefundFilters
from payments_integration.api.representations import RefundSerializer
from payments_integration.api.views.base import DetailView, ListView, SendingView
from payments_integration.models import Payment, Refund


class RefundsView(ListView, SendingView):
    model, filters, tag = Refund, RefundFilters, "refunds"
    unread = ("extra",)
    made_at = "api-refund-detail"
    calls = {
        "GET": Call(
            id="list_refunds",
            summary="List refunds",
            needs="view_refund",
            customers=True,
            gives=RefundSerializer,
            many=True,
        ),
        "POST": Call(
            id="create_refund",
            summary="Give money back",
            description="A card is refunded to the card. For every other method family the refund runs as a payout, "
            "and `destination` is needed.",
            needs="refund_payment",
            takes=RefundGiven,
            gives=RefundSerializer,
            status=201,
            errors=(404,),
        ),
    }

    @sensitive_variables("body")
    def post(self, request: Request) -> Response:
        body = self.body()
        self.given = Given(self.given.names, renamed={"payment": "payment_id"}, is_change=True)
        payment_id = body.pop("payment_id")
        if payment_id is None:
            raise missing("payment_id")
        payment = self.find_in(self.rows(Payment), payment_id, "payment_id")
        return self.send(services.create_refund, payment, **body)


class RefundView(DetailView):
    model, tag = Refund, "refunds"
    calls = {
        "GET": Call(
            id="get_refund", summary="Show a refund", needs="view_refund", customers=True, gives=RefundSerializer
        ),
    }
