"""Serve payments, refunds, payouts and deposit references: calls that move money, and lists (spec, same names)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, QuerySet
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import conf, permissions, services
from payments_integration.api import accounts
from payments_integration.api.errors import invalid, missing, refused
from payments_integration.api.lists import (
    DepositReferenceFilters,
    PaymentFilters,
    PayoutFilters,
    RefundFilters,
    SinglePage,
)
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
    TotalSerializer,
)
from payments_integration.api.views.base import DetailView, ListView
from payments_integration.api.views.sending import SendingView
from payments_integration.db.sums import ExactSum
from payments_integration.models import DepositReference, Payment, Payout, Refund
from payments_integration.payer.reading import refreshed

_REFUND = (
    "A card is refunded to the card. For every other method family the refund runs as a payout, and `destination` is "
    "needed."
)


_PLACE = {"amount": 12990, "currency": "CLP", "country": "CL"}
_RECIPIENT = {
    "type": "bank_account",
    "account_number": "123456789",
    "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "11111111-1"},
}


class PaymentsView(ListView, SendingView):
    queryset, serializer_class, filterset_class = Payment.objects.all(), PaymentSerializer, PaymentFilters
    routes = {
        "GET": Route("list_payments", "view_payment", customers=True, many=True),
        "POST": Route(
            "create_payment",
            "add_payment",
            description="In the hosted flow the answer has a `checkout_url` to send the payer to. The project says "
            "what a customer pays, and which fields a customer sends.",
            customers=True,
            body=PaymentInput,
            example={
                **_PLACE,
                "method_code": "cl_webpay_card",
                "merchant_reference": "order-1001",
                "payer": {"name": "Ana Rojas", "email": "ana@example.com"},
            },
        ),
    }

    def post(self, request: Request) -> Response:
        body = self.body() if permissions.is_staff(request.user) else self._body_of_customer()
        return self.send(services.create_payment, **body)

    def _body_of_customer(self) -> dict[str, Any]:
        """Return the arguments that the project's API_PAYMENT makes of the request.

        A customer must not choose the amount.
        """
        self.key()
        path = conf.current().API_PAYMENT
        if not path:
            words = _("You may not choose what you pay.")
            hint = "the option API_PAYMENT, which says what a customer pays, is not set"
            raise refused(words, "amount", hint=hint)
        sent = dict(self.request.data)
        if "idempotency_key" in sent:
            # An API_PAYMENT that passes the body on would let a customer use the key of somebody else's payment.
            raise invalid("idempotency_key", _("Every POST needs the header Idempotency-Key."))
        for name, value in sent.items():
            if _has_nul((name, value)):
                # The services refuse it for themselves, but the project's function looks for its order first.
                raise invalid(name, _("This has characters that cannot be stored or sent."))
        self.sent = frozenset(name for name, value in sent.items() if value is not None)
        arguments = import_string(path)(self.request, sent)
        known = {*PaymentInput().fields, "idempotency_key"}
        if not isinstance(arguments, Mapping) or not arguments.keys() <= known:
            raise TypeError(
                f"API_PAYMENT ({path}) must return a dict with arguments of create_payment: {sorted(known)}"
            )
        accounts.require(self.request.user, arguments.get("account"))
        # Without a key from the project, use the header's. Without any key, a repeated call would pay again.
        optional = ("account", "idempotency_key")
        arguments = {name: value for name, value in arguments.items() if name not in optional or value is not None}
        # The service reports what is missing.
        return dict.fromkeys(("amount", "currency", "country", "method_code")) | arguments


def _has_nul(value: Any) -> bool:
    """Return True if a decoded JSON value contains the character with which PostgreSQL refuses the whole query."""
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, Mapping):
        return any(map(_has_nul, value.items()))
    return isinstance(value, list | tuple) and any(map(_has_nul, value))


class PaymentTotalsView(ListView):
    queryset, serializer_class, filterset_class = Payment.objects.all(), TotalSerializer, PaymentFilters
    pagination_class = SinglePage
    routes = {
        "GET": Route(
            "total_payments",
            "view_payment",
            description="The sums of the payments that the filters choose, by currency and status. It needs "
            "`created_from`.",
            many=True,
        )
    }

    def get(self, request: Request, **path: str) -> Response:
        if "created_from" not in request.query_params:
            raise missing("created_from", _("Sums need a first day."))
        sums = {name: ExactSum(name) for name in TotalSerializer.SUMS}
        # What the provider no longer has counts nowhere.
        found = self.filter_queryset(self.get_queryset()).filter(gone_at=None).order_by("currency", "status")
        return self.respond_with(found.values("currency", "status").annotate(count=Count("pk"), **sums))


class PaymentQuery(serializers.Serializer[Any]):
    fresh = serializers.ChoiceField(
        ["1"],
        required=False,
        help_text="Read the payment from the provider first, for a payer who has come back while the webhook is late: "
        "every 5 s at most, and not once it is paid. If the provider does not answer within 2 s, the answer is the "
        "mirror's.",
    )


class PaymentView(DetailView):
    queryset, serializer_class, query_serializer = Payment.objects.all(), PaymentSerializer, PaymentQuery
    routes = {"GET": Route("get_payment", "view_payment", customers=True)}

    def get(self, request: Request, id: str) -> Response:
        query = PaymentQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        payment = self.find(self.get_queryset(), id)
        if query.validated_data:
            refreshed(payment)
        return super().get(request, id)


class PaymentCancelView(SendingView):
    queryset, serializer_class = Payment.objects.all(), PaymentSerializer
    routes = {
        "POST": Route(
            "cancel_payment",
            "cancel_payment",
            description="Only while its status is created or requires_action.",
            customers=True,
        )
    }

    def post(self, request: Request, id: str) -> Response:
        self.body()
        return self.send(services.cancel_payment, self.find(self.get_queryset(), id))


class PaymentRefundsView(ListView, SendingView):
    queryset, serializer_class, filterset_class = Refund.objects.all(), RefundSerializer, RefundFilters
    routes = {
        "GET": Route("list_refunds_of_payment", "view_refund", customers=True, many=True),
        "POST": Route(
            "refund_payment", "refund_payment", description=_REFUND, body=RefundOfPaymentInput, example={"amount": 990}
        ),
    }

    def get_queryset(self) -> QuerySet[Any]:
        payment = self.payment()
        return super().get_queryset().filter(payment_id=payment.pk, account=payment.account)

    def payment(self) -> Payment:
        found: Payment = self.find(self.rows(Payment.objects.all()), self.kwargs["id"])
        return found

    def post(self, request: Request, id: str) -> Response:
        body = self.body()
        return self.send(services.create_refund, self.payment(), **body)


class RefundsView(ListView, SendingView):
    queryset, serializer_class, filterset_class = Refund.objects.all(), RefundSerializer, RefundFilters
    routes = {
        "GET": Route("list_refunds", "view_refund", customers=True, many=True),
        "POST": Route(
            "create_refund",
            "refund_payment",
            description=_REFUND,
            body=RefundInput,
            example={"payment_id": "pay_5f0c1a2b3c4d5e6f7a8b9c0d", "amount": 990},
        ),
    }

    def post(self, request: Request) -> Response:
        body = self.body()
        payment_id = body.pop("payment_id")
        if payment_id is None:
            raise missing("payment_id")
        payment = self.find(self.rows(Payment.objects.all()), payment_id, "payment_id")
        return self.send(services.create_refund, payment, **body)


class RefundView(DetailView):
    queryset, serializer_class = Refund.objects.all(), RefundSerializer
    routes = {"GET": Route("get_refund", "view_refund", customers=True)}


class DepositReferencesView(ListView, SendingView):
    queryset, serializer_class = DepositReference.objects.all(), DepositReferenceSerializer
    filterset_class = DepositReferenceFilters
    routes = {
        "GET": Route("list_deposit_references", "view_depositreference", customers=True, many=True),
        "POST": Route(
            "create_deposit_reference",
            "add_depositreference",
            description="A payer can transfer to it any number of times; each transfer creates a payment.",
            customers=True,
            body=DepositReferenceInput,
            example={"country": "CL", "currency": "CLP", "method_code": "cl_deposit", "merchant_reference": "payer-7"},
        ),
    }

    def post(self, request: Request) -> Response:
        return self.send(services.create_deposit_reference, **self.body())


class DepositReferenceView(DetailView):
    queryset, serializer_class = DepositReference.objects.all(), DepositReferenceSerializer
    routes = {"GET": Route("get_deposit_reference", "view_depositreference", customers=True)}


class PayoutsView(ListView, SendingView):
    queryset, serializer_class, filterset_class = Payout.objects.all(), PayoutSerializer, PayoutFilters
    routes = {
        "GET": Route("list_payouts", "view_payout", many=True),
        "POST": Route(
            "create_payout",
            "create_payout",
            description="Amount and fee are reserved from the available balance. A payout over the merchant's limit "
            "waits for a second person: 202.",
            body=PayoutInput,
            example={**_PLACE, "method_code": "cl_bank_transfer", "destination": _RECIPIENT},
        ),
    }

    def post(self, request: Request) -> Response:
        return self.send(services.create_payout, **self.body())


class PayoutView(DetailView):
    queryset, serializer_class = Payout.objects.all(), PayoutSerializer
    routes = {"GET": Route("get_payout", "view_payout")}


class PayoutCancelView(SendingView):
    queryset, serializer_class = Payout.objects.all(), PayoutSerializer
    routes = {
        "POST": Route(
            "cancel_payout",
            "cancel_payout",
            description="Only while its status is created; the reserved money is released.",
        )
    }

    def post(self, request: Request, id: str) -> Response:
        self.body()
        return self.send(services.cancel_payout, self.find(self.get_queryset(), id))
