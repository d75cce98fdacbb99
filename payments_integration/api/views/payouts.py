"""Money out (spec, "Payouts"). For staff."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import services
from payments_integration.api.bodies import PayoutGiven
from payments_integration.api.calls import Call
from payments_integration.api.filters import PayoutFilters
from payments_integration.api.representations import PayoutSerializer
from payments_integration.api.views.base import DetailView, ListView, SendingView
from payments_integration.models import Payout


class PayoutsView(ListView, SendingView):
    model, filters, tag = Payout, PayoutFilters, "payouts"
    unread = ("extra",)
    made_at = "api-payout-detail"
    calls = {
        "GET": Call(id="list_payouts", summary="List payouts", needs="view_payout", gives=PayoutSerializer, many=True),
        "POST": Call(
            id="create_payout",
            summary="Send money",
            description="Amount and fee are reserved from the available balance. From the merchant's limit on it "
            "waits for a second person: 202.",
            needs="create_payout",
            takes=PayoutGiven,
            gives=PayoutSerializer,
            status=201,
        ),
    }

    def post(self, request: Request) -> Response:
        return self.send(services.create_payout, **self.body())


class PayoutView(DetailView):
    model, tag = Payout, "payouts"
    calls = {"GET": Call(id="get_payout", summary="Show a payout", needs="view_payout", gives=PayoutSerializer)}


class PayoutCancelView(SendingView):
    model, tag = Payout, "payouts"
    calls = {
        "POST": Call(
            id="cancel_payout",
            summary="Cancel a payout",
            description="Only while its status is created; what was reserved is released.",
            needs="cancel_payout",
            gives=PayoutSerializer,
            errors=(404,),
        ),
    }

    def post(self, request: Request, id: str) -> Response:
        self.body()
        return self.send(services.cancel_payout, self.find(id))
