"""Pay-ins (spec, "Payments")."""

from __future__ import annotations

from django.views.decorators.debug import sensitive_variables
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import services
from payments_integration.api.bodies import PaymentGiven, RefundOfPaymentGiven
from payments_integration.api.calls import Call
from payments_integration.api.errors import Given
from payments_integration.api.filters import PaymentFilters, RefundFilters
from payments_integration.api.representations import PaymentSerializer, RefundSerializer
from payments_integration.api.views.base import DetailView, ListView, SendingView
from payments_integration.models import Payment, Refund


class PaymentsView(ListView, SendingView):
    model, filters, tag = Payment, PaymentFilters, "payments"
    unread = ("extra",)
    made_at = "api-payment-detail"
    calls = {
        "GET": Call(
            id="list_payments",
            summary="List payments",
            needs="view_payment",
            customers=True,
            gives=PaymentSerializer,
            many=True,
        ),
        "POST": Call(
            id="create_payment",
            summary="Ask for money",
            description="In the hosted flow the answer has a `checkout_url` to send the payer to.",
            needs="add_payment",
            customers=True,
            takes=PaymentGiven,
            gives=PaymentSerializer,
            status=201,
        ),
    }

    def post(self, request: Request) -> Response:
        return self.send(services.create_payment, **self.body())


class PaymentView(DetailView):
    model, tag = Payment, "payments"
    calls = {
        "GET": Call(
            id="get_payment", summary="Show a payment", needs="view_payment", customers=True, gives=PaymentSerializer
        ),
    }


class PaymentCancelView(SendingView):
    model, tag = Payment, "payments"
    calls = {
        "POST": Call(
            id="cancel_payment",
            summary="Cancel a payment",
            description="Only while its status is created or requires_action.",
            needs="cancel_payment",
            customers=True,
            gives=PaymentSerializer,
            errors=(404,),
        ),
    }

    def post(self, request: Request, id: str) -> Response:
        self.body()
        return self.send(services.cancel_payment, self.find(id))


class PaymentRefundsView(ListView, SendingView):
    model, filters, tag = Refund, RefundFilters, "payments"
    unread = ("extra",)
    made_at = "api-refund-detail"
    calls = {
        "GET": Call(
            id="list_refunds_of_payment",
            summary="List the refunds of a payment",
            needs="view_refund",
            customers=True,
            gives=RefundSerializer,
            many=True,
            errors=(404,),
        ),
        "POST": Call(
            id="refund_payment",
            summary="Give money back",
            description="A card is refunded to the card. For every other method family the refund runs as a payout, "
            "and `destination` is needed.",
            needs="refund_payment",
            takes=RefundOfPaymentGiven,
            gives=RefundSerializer,
            status=201,
            errors=(404,),
        ),
    }

    def get(self, request: Request, id: str) -> Response:  # type: ignore[override]
        payments = self.with_id(self.rows(Payment), id)
        refunds = self.rows().filter(payment_id=id, payment__in=payments.values("pk")).select_related("payment")
        page = self.page(refunds, self.filters)
        if page.rows:
            # It came with them; whoever may not see it does not see what came of it either.
            first = page.rows[0]
            first.payment.is_own = getattr(first, "is_own", False)
            self.check_object_permissions(request, first.payment)
        else:
            # Nothing given back, or no such payment for this caller.
            self.find_in(payments, id)
        return self.show_page(page)

    @sensitive_variables("body")
    def post(self, request: Request, id: str) -> Response:
        body = self.body()
        self.given = Given(self.given.names, renamed={"payment": "payment_id"}, is_change=True)
        return self.send(services.create_refund, self.find(id, Payment), **body)
