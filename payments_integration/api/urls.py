"""Route the API's URLs, included under ``api/`` if the extra ``api`` is installed."""

from django.urls import URLPattern, path, re_path

from payments_integration.api.views.base import UnknownPathView
from payments_integration.api.views.decisions import ApproveView, DecideView, RejectView
from payments_integration.api.views.money import (
    DepositReferencesView,
    DepositReferenceView,
    PaymentCancelView,
    PaymentRefundsView,
    PaymentsView,
    PaymentTotalsView,
    PaymentView,
    PayoutCancelView,
    PayoutsView,
    PayoutView,
    RefundsView,
    RefundView,
)
from payments_integration.api.views.read_only import (
    BalancesView,
    EventsView,
    EventView,
    IndexView,
    OperationsView,
    OperationView,
    PaymentMethodsView,
    SchemaView,
    TryView,
)

described: tuple[URLPattern, ...] = (
    path("payments/", PaymentsView.as_view(), name="api-payment-list"),
    path("payments/totals/", PaymentTotalsView.as_view(), name="api-payment-totals"),
    path("payments/<str:id>/", PaymentView.as_view(), name="api-payment-detail"),
    path("payments/<str:id>/cancel/", PaymentCancelView.as_view(), name="api-payment-cancel"),
    path("payments/<str:id>/refunds/", PaymentRefundsView.as_view(), name="api-payment-refunds"),
    path("payouts/", PayoutsView.as_view(), name="api-payout-list"),
    path("payouts/<str:id>/", PayoutView.as_view(), name="api-payout-detail"),
    path("payouts/<str:id>/cancel/", PayoutCancelView.as_view(), name="api-payout-cancel"),
    path("refunds/", RefundsView.as_view(), name="api-refund-list"),
    path("refunds/<str:id>/", RefundView.as_view(), name="api-refund-detail"),
    path("deposit-references/", DepositReferencesView.as_view(), name="api-deposit-reference-list"),
    path("deposit-references/<str:id>/", DepositReferenceView.as_view(), name="api-deposit-reference-detail"),
    path("balances/", BalancesView.as_view(), name="api-balance-list"),
    path("payment-methods/", PaymentMethodsView.as_view(), name="api-payment-method-list"),
    path("events/", EventsView.as_view(), name="api-event-list"),
    path("events/<str:id>/", EventView.as_view(), name="api-event-detail"),
    path("operations/", OperationsView.as_view(), name="api-operation-list"),
    path("operations/<str:id>/", OperationView.as_view(), name="api-operation-detail"),
    path("operations/<str:id>/approve/", ApproveView.as_view(), name="api-operation-approve"),
    path("operations/<str:id>/reject/", RejectView.as_view(), name="api-operation-reject"),
    path("operations/<str:id>/decide/", DecideView.as_view(), name="api-operation-decide"),
)
urlpatterns: list[URLPattern] = [
    *described,
    path("", IndexView.as_view(patterns=described), name="api-index"),
    path("schema/", SchemaView.as_view(patterns=described), name="api-schema"),
    path("try/", TryView.as_view(), name="api-try"),
    # Otherwise Django would answer with its HTML page, or redirect to the slash and lose a POST.
    re_path("", UnknownPathView.as_view()),
]
