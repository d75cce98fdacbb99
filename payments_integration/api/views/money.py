"""Payments, refunds, payouts and deposit references: what moves money, and its lists (spec, same names)."""

from __future__ import annotations

from django.db.models import F
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import services
from payments_integration.api.errors import SentNames, missing
from payments_integration.api.lists import DepositReferenceFilters, PaymentFilters, PayoutFilters, RefundFilters
from payments_integration.api.request_bodies import (
    DepositReferenceInput,
    PaymentInput,
    PayoutInput,
    RefundInput,
    RefundOfPaymentInput,
)
from payments_integration.api.schema import Route
from payments_integration.api.serializers import (
    DepositReferenceSerializer,
    PaymentSerializer,
    PayoutSerializer,
    RefundSerializer,
)
from payments_integration.api.views.base import DetailView, ListView, SendingView
from payments_integration.models import DepositReference, Payment, Payout, Refund

#: A service argument that the API calls otherwise.
_RENAMED = {"payment": "payment_id"}
_REFUND = (
    "A card is refunded to the card. For every other method family the refund runs as a payout, and `destination` is "
    "needed."
)


class PaymentsView(ListView, SendingView):
    model, filters, tag = Payment, PaymentFilters, "payments"
    deferred = ("extra",)
    detail_url_name = "api-payment-detail"
    routes = {
        "GET": Route("list_payments", "List payments", "view_payment", PaymentSerializer, customers=True, many=True),
        "POST": Route(
            "create_payment",
            "Create a payment",
            "add_payment",
            PaymentSerializer,
            description="In the hosted flow the answer has a `checkout_url` to send the payer to.",
            customers=True,
            body=PaymentInput,
            status=201,
        ),
    }

    def post(self, request: Request) -> Response:
        return self.send(services.create_payment, **self.body())


class PaymentView(DetailView):
    model, tag = Payment, "payments"
    routes = {
        "GET": Route("get_payment", "Show a payment", "view_payment", PaymentSerializer, customers=True),
    }


class PaymentCancelView(SendingView):
    model, tag = Payment, "payments"
    routes = {
        "POST": Route(
            "cancel_payment",
            "Cancel a payment",
            "cancel_payment",
            PaymentSerializer,
            description="Only while its status is created or requires_action.",
            customers=True,
            errors=(404,),
        ),
    }

    def post(self, request: Request, id: str) -> Response:
        self.body()
        return self.send(services.cancel_payment, self.find(id))


class PaymentRefundsView(ListView, SendingView):
    model, filters, tag = Refund, RefundFilters, "payments"
    deferred = ("extra",)
    detail_url_name = "api-refund-detail"
    routes = {
        "GET": Route(
            "list_refunds_of_payment",
            "List the refunds of a payment",
            "view_refund",
            RefundSerializer,
            customers=True,
            many=True,
            errors=(404,),
        ),
        "POST": Route(
            "refund_payment",
            "Refund a payment",
            "refund_payment",
            RefundSerializer,
            description=_REFUND,
            body=RefundOfPaymentInput,
            status=201,
            errors=(404,),
        ),
    }

    def get(self, request: Request, id: str) -> Response:  # type: ignore[override]
        payments = self.with_id(self.rows(Payment), id)
        refunds = self.rows().filter(payment_id=id, payment__in=payments.values("pk"), payment__account=F("account"))
        page = self.page(refunds.select_related("payment"), self.filters)
        if page.rows:
            # The payment came with its refunds; a caller who may not see it does not see them either.
            first = page.rows[0]
            first.payment.is_own = getattr(first, "is_own", False)
            self.check_object_permissions(request, first.payment)
        else:
            # No refunds, or no such payment for this caller.
            self.find_in(payments, id)
        return self.show_page(page)

    def post(self, request: Request, id: str) -> Response:
        body = self.body()
        self.sent = SentNames(self.sent.names, renamed=_RENAMED, is_change=True)
        return self.send(services.create_refund, self.find(id, Payment), **body)


class RefundsView(ListView, SendingView):
    model, filters, tag = Refund, RefundFilters, "refunds"
    deferred = ("extra",)
    detail_url_name = "api-refund-detail"
    routes = {
        "GET": Route("list_refunds", "List refunds", "view_refund", RefundSerializer, customers=True, many=True),
        "POST": Route(
            "create_refund",
            "Refund a payment",
            "refund_payment",
            RefundSerializer,
            description=_REFUND,
            body=RefundInput,
            status=201,
            errors=(404,),
        ),
    }

    def post(self, request: Request) -> Response:
        body = self.body()
        self.sent = SentNames(self.sent.names, renamed=_RENAMED, is_change=True)
        payment_id = body.pop("payment_id")
        if payment_id is None:
            raise missing("payment_id")
        payment = self.find_in(self.rows(Payment), payment_id, "payment_id")
        return self.send(services.create_refund, payment, **body)


class RefundView(DetailView):
    model, tag = Refund, "refunds"
    routes = {
        "GET": Route("get_refund", "Show a refund", "view_refund", RefundSerializer, customers=True),
    }


class DepositReferencesView(ListView, SendingView):
    model, filters, tag = DepositReference, DepositReferenceFilters, "deposit references"
    deferred = ("extra",)
    detail_url_name = "api-deposit-reference-detail"
    routes = {
        "GET": Route(
            "list_deposit_references",
            "List deposit references",
            "view_depositreference",
            DepositReferenceSerializer,
            customers=True,
            many=True,
        ),
        "POST": Route(
            "create_deposit_reference",
            "Create a deposit reference",
            "add_depositreference",
            DepositReferenceSerializer,
            description="A payer can transfer to it any number of times; each transfer creates a payment.",
            customers=True,
            body=DepositReferenceInput,
            status=201,
        ),
    }

    def post(self, request: Request) -> Response:
        return self.send(services.create_deposit_reference, **self.body())


class DepositReferenceView(DetailView):
    model, tag = DepositReference, "deposit references"
    routes = {
        "GET": Route(
            "get_deposit_reference",
            "Show a deposit reference",
            "view_depositreference",
            DepositReferenceSerializer,
            customers=True,
        ),
    }


class PayoutsView(ListView, SendingView):
    model, filters, tag = Payout, PayoutFilters, "payouts"
    deferred = ("extra",)
    detail_url_name = "api-payout-detail"
    routes = {
        "GET": Route("list_payouts", "List payouts", "view_payout", PayoutSerializer, many=True),
        "POST": Route(
            "create_payout",
            "Create a payout",
            "create_payout",
            PayoutSerializer,
            description="Amount and fee are reserved from the available balance. A payout over the merchant's limit "
            "waits for a second person: 202.",
            body=PayoutInput,
            status=201,
        ),
    }

    def post(self, request: Request) -> Response:
        return self.send(services.create_payout, **self.body())


class PayoutView(DetailView):
    model, tag = Payout, "payouts"
    routes = {"GET": Route("get_payout", "Show a payout", "view_payout", PayoutSerializer)}


class PayoutCancelView(SendingView):
    model, tag = Payout, "payouts"
    routes = {
        "POST": Route(
            "cancel_payout",
            "Cancel a payout",
            "cancel_payout",
            PayoutSerializer,
            description="Only while its status is created; the reserved money is released.",
            errors=(404,),
        ),
    }

    def post(self, request: Request, id: str) -> Response:
        self.body()
        return self.send(services.cancel_payout, self.find(id))
